/* agent/scheduler.c - variables of batch systems and orchestrators.
 *
 * The most specific system is asked first: a job of Flux or Open MPI may run inside a job of Slurm,
 * and then its own variables count. Each reader fills in what its system provides. */
#include "agent/scheduler.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/limits.h"
#include "base/map.h"
#include "base/names.h"
#include "base/number.h"
#include "base/siphash.h"

/* Ports of jobs: below the range from which Linux takes ports of outgoing connections. The stride
 * has no common divisor with the count, so that as many jobs in a row have different ports, and so
 * have the steps of one job. */
#define PORT_FIRST 29400
#define PORTS_COUNT 3000
#define PORTS_STRIDE 61
#define TEXT_SIZE_MAX 600
#define HOSTFILE_SIZE_MAX MST_MIB(4)

struct reading {
    struct mst__env environment;
    const char *hostname;
    struct mst__arena *arena;
    struct mst__scheduler *scheduler;
    bool is_out_of_memory;
};

/* --- helpers --- */

static const char *get(const struct reading *reading, const char *name)
{
    return mst__env_get(reading->environment, name);
}

/* Take the value of the first variable that is set. @names ends with NULL. */
static void take(const struct reading *reading,
                 struct mst__scheduler_value *value,
                 const char *const *names)
{
    for (; *names != NULL && value->text == NULL; names++) {
        *value = (struct mst__scheduler_value){.text = get(reading, *names), .origin = *names};
    }
}

/* As take, for variables that are numbers. */
static void take_number(const struct reading *reading,
                        struct mst__scheduler_value *value,
                        const char *const *names)
{
    int64_t number = 0;
    for (; *names != NULL && value->text == NULL; names++) {
        const char *text = get(reading, *names);
        if (text != NULL && mst__number_parse(mst_bytes_str(text), 0, INT64_MAX, &number)) {
            *value = (struct mst__scheduler_value){.text = text, .origin = *names};
        }
    }
}

static const char *make(struct reading *reading, const char *format, ...) MST_PRINTF(2, 3);
static const char *make(struct reading *reading, const char *format, ...)
{
    char text[TEXT_SIZE_MAX];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    const char *made = mst__arena_text(reading->arena, mst_bytes_str(text));
    reading->is_out_of_memory = reading->is_out_of_memory || made == NULL;
    return made;
}

static int64_t number_of(const char *text)
{
    int64_t number = 0;
    return text != NULL && mst__number_parse_prefix(mst_bytes_str(text), &number) ? number : 0;
}

/* --- lists of hosts --- */

static int stop_at_first(void *arg, const char *name, struct mst_err *reterr)
{
    (void)reterr;
    char *first = arg;
    (void)snprintf(first, TEXT_SIZE_MAX, "%s", name);
    return MST_ELIMIT; /* ends the walk */
}

struct position {
    const char *hostname;
    int64_t index, found;
};

/* Whether two names mean the same host. A name without a domain matches any domain. */
static bool is_same_host(const char *a, const char *b)
{
    size_t a_size = strcspn(a, ".");
    size_t b_size = strcspn(b, ".");
    if (a_size != b_size || strncmp(a, b, a_size) != 0) {
        return false;
    }
    return a[a_size] == '\0' || b[b_size] == '\0' || strcmp(a + a_size, b + b_size) == 0;
}

static int count_host(void *arg, const char *name, struct mst_err *reterr)
{
    (void)reterr;
    struct position *position = arg;
    if (position->found < 0 && is_same_host(name, position->hostname)) {
        position->found = position->index;
    }
    position->index++;
    return position->index <= MST_HOSTS_MAX ? 0 : MST_ELIMIT; /* not a plausible list */
}

/* The port of step @step of @job, a number or any other name, so that jobs can share a node. */
static int64_t port_of(const char *job, int64_t step)
{
    int64_t number = 0;
    if (!mst__number_parse_prefix(mst_bytes_str(job), &number)) {
        number = (int64_t)(mst__fingerprint(mst_bytes_str(job)) % PORTS_COUNT);
    }
    int64_t place = (number % PORTS_COUNT * PORTS_STRIDE + step % PORTS_COUNT) % PORTS_COUNT;
    return PORT_FIRST + (place < 0 ? 0 : place);
}

/* The endpoint is on the first host of the list. */
static void take_endpoint(struct reading *reading, const char *job, int64_t step)
{
    struct mst__scheduler *scheduler = reading->scheduler;
    char first[TEXT_SIZE_MAX] = "";
    if (scheduler->hosts.text == NULL) {
        return;
    }
    (void)mst__names_walk(scheduler->hosts.text, stop_at_first, first, NULL);
    if (first[0] == '\0') {
        return;
    }
    scheduler->endpoint = (struct mst__scheduler_value){
        .text = make(reading, "%s:%" PRId64, first, port_of(job, step)),
        .origin = scheduler->hosts.origin,
    };
}

/* If no variable has them, take the number of nodes and this node's rank from the list of hosts. */
static void take_place(struct reading *reading)
{
    struct mst__scheduler *scheduler = reading->scheduler;
    struct position position = {.hostname = reading->hostname, .found = -1};
    if (scheduler->hosts.text == NULL ||
        mst__names_walk(scheduler->hosts.text, count_host, &position, NULL) != 0) {
        return;
    }
    if (scheduler->nnodes.text == NULL) {
        scheduler->nnodes = (struct mst__scheduler_value){
            .text = make(reading, "%" PRId64, position.index), .origin = scheduler->hosts.origin};
    }
    if (scheduler->node_rank.text == NULL && position.found >= 0) {
        scheduler->node_rank = (struct mst__scheduler_value){
            .text = make(reading, "%" PRId64, position.found), .origin = scheduler->hosts.origin};
    }
}

/* --- Slurm --- */

static const char *slurm_step(const struct reading *reading)
{
    const char *step = get(reading, "SLURM_STEP_ID");
    return step != NULL ? step : get(reading, "SLURM_STEPID");
}

static void read_slurm_id(struct reading *reading, const char *job)
{
    const char *restarts = get(reading, "SLURM_RESTART_COUNT");
    if (restarts == NULL) {
        restarts = get(reading, "SLURM_JOB_RESTART_COUNT");
    }
    const char *step = slurm_step(reading);
    bool has_restarts = number_of(restarts) > 0;
    reading->scheduler->id = (struct mst__scheduler_value){
        .text =
            make(reading, "slurm-%s%s%s%s%s", job, step == NULL ? "" : ".",
                 step == NULL ? "" : step, has_restarts ? "-r" : "", has_restarts ? restarts : ""),
        .origin = has_restarts ? "SLURM_JOB_ID, SLURM_RESTART_COUNT" : "SLURM_JOB_ID",
    };
}

/* What squeue calls this job. One task of an array has the number of the array itself, by which
 * squeue names all of its tasks. A job that a task submits may have its variables. */
static const char *slurm_name(struct reading *reading, const char *job)
{
    const char *array = get(reading, "SLURM_ARRAY_JOB_ID");
    const char *task = get(reading, "SLURM_ARRAY_TASK_ID");
    bool is_named_so = array != NULL && task != NULL && strcmp(array, job) == 0;
    return is_named_so ? make(reading, "%s_%s", array, task) : job;
}

/* Whether nodes have several tasks; each task is then an agent with one worker. */
static bool has_task_per_worker(const struct reading *reading)
{
    int64_t tasks = number_of(get(reading, "SLURM_STEP_NUM_TASKS"));
    int64_t nodes = number_of(reading->scheduler->nnodes.text);
    return get(reading, "SLURM_PROCID") != NULL && nodes > 0 && tasks > nodes;
}

/* Find entry @index of a list such as `2(x3),1`: 2, 2, 2, 1. Returns 0 if it is not there. */
static int64_t counted_entry(const char *list, int64_t index)
{
    while (list != NULL && *list != '\0') {
        size_t size = strcspn(list, ",");
        const char *times = strstr(list, "(x");
        int64_t repeats = times != NULL && times < list + size ? number_of(times + 2) : 1;
        if (index < repeats) {
            return number_of(list);
        }
        index -= repeats;
        list += size + (list[size] == ',' ? 1 : 0);
    }
    return 0;
}

/* The place of this task among those of the step on this node. */
static void take_slurm_task(struct reading *reading)
{
    struct mst__scheduler *scheduler = reading->scheduler;
    struct mst__scheduler_value tasks = {0};
    take(reading, &tasks,
         (const char *const[]){"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE", NULL});
    int64_t count = counted_entry(tasks.text, number_of(get(reading, "SLURM_NODEID")));
    if (count > 0) {
        take_number(reading, &scheduler->local_rank, (const char *const[]){"SLURM_LOCALID", NULL});
        scheduler->local_size = (struct mst__scheduler_value){
            .text = make(reading, "%" PRId64, count), .origin = tasks.origin};
    }
}

/* A batch script runs on the first node of its job, outside of any step. */
static bool is_batch_script(const struct reading *reading)
{
    return slurm_step(reading) == NULL && get(reading, "SLURM_STEP_NODELIST") == NULL &&
           number_of(get(reading, "SLURM_NODEID")) == 0;
}

static bool read_slurm(struct reading *reading)
{
    struct mst__scheduler *scheduler = reading->scheduler;
    const char *job = get(reading, "SLURM_JOB_ID");
    job = job != NULL ? job : get(reading, "SLURM_JOBID");
    if (job == NULL) {
        return false;
    }
    scheduler->name = "Slurm";
    scheduler->slurm_job = slurm_name(reading, job);
    take(
        reading, &scheduler->hosts,
        (const char *const[]){"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST", NULL});
    take_number(reading, &scheduler->end_time, (const char *const[]){"SLURM_JOB_END_TIME", NULL});
    take_number(reading, &scheduler->cpus,
                (const char *const[]){"SLURM_CPUS_PER_TASK", "SLURM_CPUS_ON_NODE", NULL});
    take(reading, &scheduler->topology, (const char *const[]){"SLURM_TOPOLOGY_ADDR", NULL});
    read_slurm_id(reading, job);
    if (get(reading, "SLURM_NODEID") == NULL && get(reading, "SLURM_PROCID") == NULL) {
        return true; /* a shell of salloc: not part of a step */
    }
    take_number(
        reading, &scheduler->nnodes,
        (const char *const[]){"SLURM_STEP_NUM_NODES", "SLURM_JOB_NUM_NODES", "SLURM_NNODES", NULL});
    if (is_batch_script(reading) && number_of(scheduler->nnodes.text) > 1) {
        scheduler->batch_nodes = scheduler->nnodes;
        scheduler->nnodes = (struct mst__scheduler_value){0};
        take_number(reading, &scheduler->nproc, (const char *const[]){"SLURM_GPUS_ON_NODE", NULL});
        return true;
    }
    take_endpoint(reading, job, number_of(slurm_step(reading)));
    take_slurm_task(reading);
    if (has_task_per_worker(reading)) {
        scheduler->nnodes = (struct mst__scheduler_value){
            .text = get(reading, "SLURM_STEP_NUM_TASKS"), .origin = "SLURM_STEP_NUM_TASKS"};
        take_number(reading, &scheduler->node_rank, (const char *const[]){"SLURM_PROCID", NULL});
        return true;
    }
    take_number(reading, &scheduler->node_rank, (const char *const[]){"SLURM_NODEID", NULL});
    take_number(reading, &scheduler->nproc, (const char *const[]){"SLURM_GPUS_ON_NODE", NULL});
    take_place(reading);
    return true;
}

/* --- Kubernetes --- */

/* Split a pod's host name into the name and the number after its last dash. Pods of a Deployment
 * end in five letters and digits, so a longer number does not count. */
static bool split_pod_name(const char *hostname, size_t *ret_name_size, const char **ret_number)
{
    size_t size = strcspn(hostname, ".");
    size_t digits = 0;
    while (digits < size && isdigit((unsigned char)hostname[size - digits - 1])) {
        digits++;
    }
    if (digits == 0 || digits > 4 || digits + 1 >= size || hostname[size - digits - 1] != '-') {
        return false;
    }
    *ret_name_size = size - digits - 1;
    *ret_number = hostname + size - digits;
    return true;
}

/* The variables of Kubeflow's PyTorchJob, whose pods are `JOB-master-0` and `JOB-worker-N`. Old
 * operators call the master `localhost` on itself. The workers of an agent have such variables,
 * too; an agent among them is not the operator's. */
static bool read_kubeflow(struct reading *reading)
{
    static const char master[] = "-master-0";
    struct mst__scheduler *scheduler = reading->scheduler;
    const char *host = get(reading, "MASTER_ADDR");
    const char *port = get(reading, "MASTER_PORT");
    if (host == NULL || port == NULL || get(reading, "RANK") == NULL ||
        get(reading, "WORLD_SIZE") == NULL || get(reading, "TORCHELASTIC_RUN_ID") != NULL) {
        return false;
    }
    host = strcmp(host, "localhost") == 0 ? reading->hostname : host;
    size_t size = strcspn(host, ".");
    size_t end = sizeof master - 1;
    size -= size > end && strncmp(host + size - end, master, end) == 0 ? end : 0;
    scheduler->name = "Kubeflow";
    scheduler->id = (struct mst__scheduler_value){.text = make(reading, "%.*s", (int)size, host),
                                                  .origin = "MASTER_ADDR"};
    scheduler->endpoint = (struct mst__scheduler_value){.text = make(reading, "%s:%s", host, port),
                                                        .origin = "MASTER_ADDR"};
    take_number(reading, &scheduler->node_rank, (const char *const[]){"RANK", NULL});
    take_number(reading, &scheduler->nnodes, (const char *const[]){"WORLD_SIZE", NULL});
    return true;
}

static bool read_kubernetes(struct reading *reading)
{
    struct mst__scheduler *scheduler = reading->scheduler;
    bool is_here = get(reading, "KUBERNETES_SERVICE_HOST") != NULL;
    const char *index = get(reading, "JOB_COMPLETION_INDEX");
    if (!is_here && index == NULL) {
        return false;
    }
    if (is_here && read_kubeflow(reading)) {
        return true;
    }
    scheduler->name = "Kubernetes";
    take_number(reading, &scheduler->node_rank,
                (const char *const[]){"JOB_COMPLETION_INDEX", NULL});
    size_t name_size = 0;
    const char *number = NULL;
    if (!split_pod_name(reading->hostname, &name_size, &number)) {
        return true;
    }
    const char *domain = strchr(reading->hostname, '.');
    if (scheduler->node_rank.text == NULL) {
        scheduler->node_rank = (struct mst__scheduler_value){
            .text = make(reading, "%.*s", (int)strcspn(number, "."), number),
            .origin = "the pod's host name"};
    }
    scheduler->id = (struct mst__scheduler_value){
        .text = make(reading, "%.*s", (int)name_size, reading->hostname),
        .origin = "the pod's host name"};
    scheduler->endpoint =
        (struct mst__scheduler_value){.text = make(reading, "%.*s-0%s", (int)name_size,
                                                   reading->hostname, domain == NULL ? "" : domain),
                                      .origin = "the pod's host name"};
    return true;
}

/* --- MPI --- */

/* All processes of the job are on this node, as @origin says: they meet here. */
static void meet_here(struct reading *reading, const char *origin)
{
    struct mst__scheduler *scheduler = reading->scheduler;
    const char *job = scheduler->id.text == NULL ? "" : scheduler->id.text;
    scheduler->endpoint = (struct mst__scheduler_value){
        .text = make(reading, "localhost:%" PRId64, port_of(job, 0)), .origin = origin};
}

static void take_local(struct reading *reading,
                       const char *const *local_ranks,
                       const char *const *local_sizes)
{
    struct mst__scheduler *scheduler = reading->scheduler;
    take_number(reading, &scheduler->local_rank, local_ranks);
    take_number(reading, &scheduler->local_size, local_sizes);
    if (scheduler->nnodes.text != NULL && scheduler->local_size.text != NULL &&
        number_of(scheduler->local_size.text) == number_of(scheduler->nnodes.text)) {
        meet_here(reading, scheduler->local_size.origin);
    }
}

static bool read_open_mpi(struct reading *reading)
{
    struct mst__scheduler *scheduler = reading->scheduler;
    if (get(reading, "OMPI_COMM_WORLD_SIZE") == NULL) {
        return false;
    }
    scheduler->name = "Open MPI";
    take_number(reading, &scheduler->nnodes, (const char *const[]){"OMPI_COMM_WORLD_SIZE", NULL});
    take_number(reading, &scheduler->node_rank,
                (const char *const[]){"OMPI_COMM_WORLD_RANK", NULL});
    take(reading, &scheduler->id,
         (const char *const[]){"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_jobid",
                               NULL});
    take_local(reading, (const char *const[]){"OMPI_COMM_WORLD_LOCAL_RANK", NULL},
               (const char *const[]){"OMPI_COMM_WORLD_LOCAL_SIZE", NULL});
    return true;
}

static bool read_pmi(struct reading *reading)
{
    struct mst__scheduler *scheduler = reading->scheduler;
    bool is_pmi = get(reading, "PMI_RANK") != NULL && get(reading, "PMI_SIZE") != NULL;
    bool is_pmix = get(reading, "PMIX_RANK") != NULL && get(reading, "PMIX_NAMESPACE") != NULL;
    if (!is_pmi && !is_pmix) {
        return false;
    }
    scheduler->name = is_pmi ? "PMI" : "PMIx";
    take_number(reading, &scheduler->nnodes, (const char *const[]){"PMI_SIZE", "PMIX_SIZE", NULL});
    take_number(reading, &scheduler->node_rank,
                (const char *const[]){"PMI_RANK", "PMIX_RANK", NULL});
    take(reading, &scheduler->id,
         (const char *const[]){"PMI_JOBID", "PMIX_NAMESPACE", "HYDRA_JOBID", NULL});
    take_local(reading,
               (const char *const[]){"MPI_LOCALRANKID", "PMI_LOCAL_RANK", "PMIX_LOCAL_RANK", NULL},
               (const char *const[]){"MPI_LOCALNRANKS", "PMI_LOCAL_SIZE", "PMIX_LOCAL_SIZE", NULL});
    return true;
}

/* --- Flux, LSF, PBS --- */

static bool read_flux(struct reading *reading)
{
    struct mst__scheduler *scheduler = reading->scheduler;
    if (get(reading, "FLUX_JOB_ID") == NULL) {
        return false;
    }
    scheduler->name = "Flux";
    take(reading, &scheduler->id, (const char *const[]){"FLUX_JOB_ID", NULL});
    take_number(reading, &scheduler->nnodes,
                (const char *const[]){"FLUX_JOB_SIZE", "FLUX_JOB_NNODES", NULL});
    take_number(reading, &scheduler->node_rank, (const char *const[]){"FLUX_TASK_RANK", NULL});
    take(reading, &scheduler->hosts, (const char *const[]){"FLUX_JOB_HOSTLIST", NULL});
    int64_t hosts = number_of(get(reading, "FLUX_JOB_NNODES"));
    int64_t tasks = number_of(get(reading, "FLUX_JOB_SIZE"));
    if (hosts > 0 && tasks % hosts == 0) { /* Flux does not say how many tasks are here */
        take_number(reading, &scheduler->local_rank,
                    (const char *const[]){"FLUX_TASK_LOCAL_ID", NULL});
        scheduler->local_size = (struct mst__scheduler_value){
            .text = make(reading, "%" PRId64, tasks / hosts), .origin = "FLUX_JOB_SIZE"};
    }
    if (hosts == 1) {
        meet_here(reading, "FLUX_JOB_NNODES");
    }
    take_endpoint(reading, scheduler->id.text, 0);
    return true;
}

/* Append @host to @list, and remember it in @seen; only once. 0, MST_ELIMIT or MST_ENOMEM. */
static int add_host(struct mst__buf *list, struct mst__map *seen, struct mst_bytes host)
{
    if (mst__map_get(seen, host) != NULL) {
        return 0;
    }
    int rv = mst__map_add(seen, host) == NULL ? MST_ENOMEM : 0;
    rv = rv == 0 && mst__buf_size(list) > 0 ? mst__buf_append_u8(list, ',') : rv;
    return rv == 0 ? mst__buf_append(list, host) : rv;
}

/* Turn `a 8 b 8`, `a a b b`, `a b a b`, or lines into a list with commas, each host once. */
static const char *unique_hosts(struct reading *reading, const char *text)
{
    static const uint8_t no_key[MST_SIPHASH_KEY_SIZE]; /* the scheduler is no enemy */
    struct mst__buf list;
    struct mst__map seen;
    mst__buf_init(&list, HOSTFILE_SIZE_MAX);
    mst__map_init(&seen, 1, no_key);
    int rv = 0;
    for (const char *at = text; *at != '\0' && rv == 0;) {
        size_t size = strcspn(at, " \t\r\n");
        size_t digits = strspn(at, "0123456789");
        if (digits < size) { /* else it is a number of slots */
            rv = add_host(&list, &seen, mst_bytes_of(at, size));
        }
        at += size;
        at += strspn(at, " \t\r\n");
    }
    const char *made = mst__arena_text(reading->arena, mst__buf_bytes(&list));
    reading->is_out_of_memory = reading->is_out_of_memory || rv != 0 || made == NULL;
    mst__map_close(&seen);
    mst__buf_close(&list);
    return rv == 0 && made != NULL && *made != '\0' ? made : NULL;
}

static bool read_lsf(struct reading *reading)
{
    struct mst__scheduler *scheduler = reading->scheduler;
    const char *job = get(reading, "LSB_JOBID");
    if (job == NULL) {
        return false;
    }
    const char *index = get(reading, "LSB_JOBINDEX");
    bool is_array = number_of(index) > 0;
    scheduler->name = "LSF";
    scheduler->id = (struct mst__scheduler_value){
        .text = is_array ? make(reading, "lsf-%s.%s", job, index) : make(reading, "lsf-%s", job),
        .origin = is_array ? "LSB_JOBID, LSB_JOBINDEX" : "LSB_JOBID"};
    struct mst__scheduler_value hosts = {0};
    take(reading, &hosts, (const char *const[]){"LSB_MCPU_HOSTS", "LSB_HOSTS", NULL});
    if (hosts.text != NULL) {
        scheduler->hosts = (struct mst__scheduler_value){.text = unique_hosts(reading, hosts.text),
                                                         .origin = hosts.origin};
    }
    take_endpoint(reading, job, number_of(index));
    take_place(reading);
    return true;
}

/* The content of a small file, in the arena; NULL if it cannot be read. */
static const char *read_small_file(struct reading *reading, const char *path)
{
    FILE *file = fopen(path, "re");
    struct mst__buf text;
    mst__buf_init(&text, HOSTFILE_SIZE_MAX);
    int code = 0;
    size_t size = 0;
    do {
        uint8_t *room = file == NULL ? NULL : mst__buf_reserve(&text, 4096, &code);
        size = room == NULL ? 0 : fread(room, 1, 4096, file);
        mst__buf_commit(&text, size);
    } while (size > 0);
    const char *made = file == NULL ? NULL : mst__arena_text(reading->arena, mst__buf_bytes(&text));
    if (file != NULL) {
        (void)fclose(file); /* only read from */
    }
    mst__buf_close(&text);
    return made;
}

static bool read_pbs(struct reading *reading)
{
    struct mst__scheduler *scheduler = reading->scheduler;
    const char *job = get(reading, "PBS_JOBID");
    if (job == NULL) {
        return false;
    }
    scheduler->name = "PBS";
    scheduler->id =
        (struct mst__scheduler_value){.text = make(reading, "pbs-%s", job), .origin = "PBS_JOBID"};
    const char *path = get(reading, "PBS_NODEFILE");
    const char *lines = path == NULL ? NULL : read_small_file(reading, path);
    if (lines != NULL) {
        scheduler->hosts = (struct mst__scheduler_value){.text = unique_hosts(reading, lines),
                                                         .origin = "PBS_NODEFILE"};
    }
    take_number(reading, &scheduler->nnodes, (const char *const[]){"PBS_NUM_NODES", NULL});
    take_number(reading, &scheduler->node_rank, (const char *const[]){"PBS_NODENUM", NULL});
    take_number(reading, &scheduler->cpus, (const char *const[]){"NCPUS", "PBS_NUM_PPN", NULL});
    const char *index = strchr(job, '['); /* 33[5].server is a job of an array */
    take_endpoint(reading, job, number_of(index == NULL ? NULL : index + 1));
    take_place(reading);
    return true;
}

int mst__scheduler_read(struct mst__env environment,
                        const char *hostname,
                        struct mst__arena *arena,
                        struct mst__scheduler *ret_scheduler,
                        struct mst_err *reterr)
{
    static bool (*const readers[])(struct reading *) = {
        read_open_mpi, read_flux, read_slurm, read_pmi, read_lsf, read_pbs, read_kubernetes,
    };
    *ret_scheduler = (struct mst__scheduler){0};
    struct reading reading = {
        .environment = environment,
        .hostname = hostname,
        .arena = arena,
        .scheduler = ret_scheduler,
    };
    for (size_t i = 0; i < sizeof readers / sizeof readers[0]; i++) {
        if (readers[i](&reading)) {
            break;
        }
    }
    return reading.is_out_of_memory ? mst__fail(reterr, MST_ENOMEM, 0, "scheduler's variables") : 0;
}
