/* unit/agent/test_scheduler.c - the variables of schedulers, faked. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/scheduler.h"
#include "unit/unit.h"

static struct mst__arena arena;

static struct mst__scheduler read_with(const char *hostname, const char *const *entries)
{
    struct mst__scheduler scheduler;
    struct mst_err err;
    int rv = mst__scheduler_read(mst__env_entries(entries), hostname, &arena, &scheduler, &err);
    assert_int_equal(rv, 0);
    return scheduler;
}

#define READ(hostname, ...) read_with((hostname), (const char *const[]){__VA_ARGS__, NULL})

static void assert_value(struct mst__scheduler_value value, const char *text, const char *origin)
{
    assert_non_null(value.text);
    assert_string_equal(value.text, text);
    assert_string_equal(value.origin, origin);
}

static int port_in(const char *endpoint)
{
    return (int)strtol(strrchr(endpoint, ':') + 1, NULL, 10);
}

static int reset(void **state)
{
    (void)state;
    mst__arena_close(&arena);
    return 0;
}

static void none(void **state)
{
    (void)state;
    struct mst__scheduler scheduler = READ("host-3", "PATH=/bin", "SLURM_JOB_ID=");
    assert_null(scheduler.name);
    assert_null(scheduler.id.text);
}

static void slurm(void **state)
{
    (void)state;
    struct mst__scheduler scheduler =
        READ("node003", "SLURM_JOB_ID=4711", "SLURM_STEP_ID=0", "SLURM_JOB_NUM_NODES=4",
             "SLURM_NODEID=2", "SLURM_JOB_NODELIST=node[001-003,017]", "SLURM_GPUS_ON_NODE=8",
             "SLURM_CPUS_PER_TASK=16", "SLURM_JOB_END_TIME=1790000000", "SLURM_RESTART_COUNT=2",
             "SLURM_TOPOLOGY_ADDR=s0.s4.node003");
    assert_string_equal(scheduler.name, "Slurm");
    assert_value(scheduler.id, "slurm-4711.0-r2", "SLURM_JOB_ID, SLURM_RESTART_COUNT");
    assert_value(scheduler.nnodes, "4", "SLURM_JOB_NUM_NODES");
    assert_value(scheduler.node_rank, "2", "SLURM_NODEID");
    assert_value(scheduler.endpoint, "node001:31771", "SLURM_JOB_NODELIST");
    assert_value(scheduler.nproc, "8", "SLURM_GPUS_ON_NODE");
    assert_value(scheduler.cpus, "16", "SLURM_CPUS_PER_TASK");
    assert_value(scheduler.end_time, "1790000000", "SLURM_JOB_END_TIME");
    assert_value(scheduler.topology, "s0.s4.node003", "SLURM_TOPOLOGY_ADDR");
    /* A requeued job is another one from its first restart on. */
    scheduler = READ("n1", "SLURM_JOB_ID=5", "SLURM_STEP_ID=0", "SLURM_RESTART_COUNT=1");
    assert_value(scheduler.id, "slurm-5.0-r1", "SLURM_JOB_ID, SLURM_RESTART_COUNT");
    scheduler = READ("n1", "SLURM_JOB_ID=5", "SLURM_STEP_ID=0", "SLURM_RESTART_COUNT=0");
    assert_value(scheduler.id, "slurm-5.0", "SLURM_JOB_ID");
}

static void slurm_lists(void **state)
{
    (void)state;
    static const struct {
        const char *list, *endpoint;
    } cases[] = {
        {"a", "a:29461"},
        {"b2,b1", "b2:29461"},
        {"gpu-[07-09]", "gpu-07:29461"},
        {"r[1-2]n[3-4]x,z", "r1n3x:29461"},
        {"rack1-[5]", "rack1-5:29461"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char list[100];
        (void)snprintf(list, sizeof list, "SLURM_JOB_NODELIST=%s", cases[i].list);
        struct mst__scheduler scheduler =
            READ("x", "SLURM_JOB_ID=1", "SLURM_STEP_ID=0", "SLURM_NODEID=0", list);
        assert_value(scheduler.endpoint, cases[i].endpoint, "SLURM_JOB_NODELIST");
    }
    struct mst__scheduler scheduler =
        READ("x", "SLURM_JOB_ID=1", "SLURM_STEP_ID=0", "SLURM_NODEID=0", "SLURM_JOB_NODELIST=a[1-");
    assert_null(scheduler.endpoint.text);
    /* A list of more hosts than there are is not counted to its end. */
    scheduler = READ("x", "SLURM_JOB_ID=1", "SLURM_STEP_ID=0", "SLURM_NODEID=0",
                     "SLURM_JOB_NODELIST=a[1-999999999]b[1-999999999]");
    assert_null(scheduler.nnodes.text);
}

/* The shell of an allocation is not part of the job, a step with several tasks per node has an
 * agent for each, and steps of one job are separate jobs. */
static void slurm_steps(void **state)
{
    (void)state;
    struct mst__scheduler scheduler =
        READ("login", "SLURM_JOB_ID=5", "SLURM_JOB_NUM_NODES=4", "SLURM_JOB_NODELIST=n[1-4]");
    assert_null(scheduler.nnodes.text);
    assert_null(scheduler.endpoint.text);
    assert_value(scheduler.hosts, "n[1-4]", "SLURM_JOB_NODELIST");
    scheduler =
        READ("n2", "SLURM_JOB_ID=5", "SLURM_STEP_ID=3", "SLURM_STEP_NUM_NODES=2",
             "SLURM_JOB_NUM_NODES=4", "SLURM_STEP_NODELIST=n[2-3]", "SLURM_JOB_NODELIST=n[1-4]",
             "SLURM_STEP_NUM_TASKS=6", "SLURM_PROCID=1", "SLURM_NODEID=0", "SLURM_GPUS_ON_NODE=3");
    assert_value(scheduler.id, "slurm-5.3", "SLURM_JOB_ID");
    assert_value(scheduler.nnodes, "6", "SLURM_STEP_NUM_TASKS");
    assert_value(scheduler.node_rank, "1", "SLURM_PROCID");
    assert_value(scheduler.endpoint, "n2:29708", "SLURM_STEP_NODELIST");
    assert_null(scheduler.nproc.text);
    /* A step on some nodes of its job. */
    scheduler = READ("n3", "SLURM_JOB_ID=5", "SLURM_STEP_ID=4", "SLURM_STEP_NUM_NODES=2",
                     "SLURM_JOB_NUM_NODES=4", "SLURM_NNODES=4", "SLURM_STEP_NODELIST=n[2-3]",
                     "SLURM_JOB_NODELIST=n[1-4]", "SLURM_STEP_NUM_TASKS=2", "SLURM_PROCID=1",
                     "SLURM_NODEID=1");
    assert_value(scheduler.nnodes, "2", "SLURM_STEP_NUM_NODES");
    assert_value(scheduler.node_rank, "1", "SLURM_NODEID");
}

/* Steps of a job run at the same time on the same nodes, and so do jobs. */
static void slurm_ports(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {
        {"SLURM_JOB_ID=5", "SLURM_STEP_ID=0"},    {"SLURM_JOB_ID=5", "SLURM_STEP_ID=1"},
        {"SLURM_JOB_ID=5", "SLURM_STEP_ID=2"},    {"SLURM_JOB_ID=6", "SLURM_STEP_ID=0"},
        {"SLURM_JOB_ID=6", "SLURM_STEP_ID=1"},    {"SLURM_JOB_ID=2005", "SLURM_STEP_ID=0"},
        {"SLURM_JOB_ID=5", "SLURM_STEP_ID=1000"}, {"SLURM_JOB_ID=5", "SLURM_STEPID=2999"},
    };
    enum { COUNT = sizeof pairs / sizeof pairs[0] };
    char endpoints[COUNT][40];
    for (size_t i = 0; i < COUNT; i++) {
        struct mst__scheduler scheduler =
            READ("n1", pairs[i][0], pairs[i][1], "SLURM_NODEID=0", "SLURM_JOB_NODELIST=n[1-4]");
        assert_non_null(scheduler.endpoint.text);
        (void)snprintf(endpoints[i], sizeof endpoints[i], "%s", scheduler.endpoint.text);
        int port = port_in(endpoints[i]);
        assert_in_range(port, 29400, 32399);
        for (size_t j = 0; j < i; j++) {
            assert_string_not_equal(endpoints[i], endpoints[j]);
        }
    }
}

/* A batch script runs on one node of its job and is not a task of a step. */
static void slurm_batch(void **state)
{
    (void)state;
    struct mst__scheduler scheduler =
        READ("n1", "SLURM_JOB_ID=5", "SLURM_JOB_NUM_NODES=4", "SLURM_JOB_NODELIST=n[1-4]",
             "SLURM_NODEID=0", "SLURM_PROCID=0", "SLURM_LOCALID=0", "SLURM_TASKS_PER_NODE=2(x4)",
             "SLURM_GPUS_ON_NODE=8");
    assert_null(scheduler.nnodes.text);
    assert_null(scheduler.node_rank.text);
    assert_null(scheduler.endpoint.text);
    assert_null(scheduler.local_rank.text);
    assert_value(scheduler.batch_nodes, "4", "SLURM_JOB_NUM_NODES");
    assert_value(scheduler.hosts, "n[1-4]", "SLURM_JOB_NODELIST");
    assert_value(scheduler.nproc, "8", "SLURM_GPUS_ON_NODE");
    scheduler = READ("n1", "SLURM_JOB_ID=5", "SLURM_JOB_NUM_NODES=1", "SLURM_JOB_NODELIST=n1",
                     "SLURM_NODEID=0", "SLURM_PROCID=0");
    assert_null(scheduler.batch_nodes.text);
    assert_value(scheduler.nnodes, "1", "SLURM_JOB_NUM_NODES");
    /* Any other node has agents that a step has started. */
    scheduler = READ("n2", "SLURM_JOB_ID=5", "SLURM_JOB_NUM_NODES=4", "SLURM_NODEID=1");
    assert_null(scheduler.batch_nodes.text);
}

/* The place of a task among those of its node. */
static void slurm_tasks(void **state)
{
    (void)state;
    static const struct {
        const char *node, *list, *size;
    } cases[] = {
        {"SLURM_NODEID=0", "SLURM_STEP_TASKS_PER_NODE=2(x3),1", "2"},
        {"SLURM_NODEID=2", "SLURM_STEP_TASKS_PER_NODE=2(x3),1", "2"},
        {"SLURM_NODEID=3", "SLURM_STEP_TASKS_PER_NODE=2(x3),1", "1"},
        {"SLURM_NODEID=1", "SLURM_STEP_TASKS_PER_NODE=1,4,2(x2)", "4"},
        {"SLURM_NODEID=0", "SLURM_TASKS_PER_NODE=12", "12"},
        {"SLURM_NODEID=4", "SLURM_STEP_TASKS_PER_NODE=2(x3),1", NULL},
        {"SLURM_NODEID=0", "SLURM_STEP_TASKS_PER_NODE=many", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct mst__scheduler scheduler =
            READ("n", "SLURM_JOB_ID=5", "SLURM_STEP_ID=0", "SLURM_STEP_NUM_NODES=4",
                 "SLURM_LOCALID=1", cases[i].node, cases[i].list);
        if (cases[i].size == NULL) {
            assert_null(scheduler.local_size.text);
            continue;
        }
        assert_string_equal(scheduler.local_size.text, cases[i].size);
        assert_value(scheduler.local_rank, "1", "SLURM_LOCALID");
    }
}

static void kubernetes(void **state)
{
    (void)state;
    struct mst__scheduler scheduler = READ("train-2.svc", "JOB_COMPLETION_INDEX=2");
    assert_string_equal(scheduler.name, "Kubernetes");
    assert_value(scheduler.node_rank, "2", "JOB_COMPLETION_INDEX");
    assert_value(scheduler.id, "train", "the pod's host name");
    assert_value(scheduler.endpoint, "train-0.svc", "the pod's host name");
    scheduler = READ("web-12", "KUBERNETES_SERVICE_HOST=10.0.0.1");
    assert_value(scheduler.node_rank, "12", "the pod's host name");
    assert_value(scheduler.endpoint, "web-0", "the pod's host name");
    /* A pod of a Deployment has no number. */
    scheduler = READ("web-7d4b9c-12345", "KUBERNETES_SERVICE_HOST=10.0.0.1");
    assert_null(scheduler.node_rank.text);
    assert_null(scheduler.endpoint.text);
}

/* What Kubeflow's training operator sets in the pods of a PyTorchJob: the same job and place for
 * master and workers, whatever their host names are. */
static void kubeflow(void **state)
{
    (void)state;
#define OPERATOR "KUBERNETES_SERVICE_HOST=10.0.0.1", "PYTHONUNBUFFERED=0", "MASTER_PORT=23456"
    static const char *const masters[] = {"MASTER_ADDR=train-master-0", "MASTER_ADDR=localhost"};
    for (size_t i = 0; i < 2; i++) { /* old operators write localhost on the master */
        struct mst__scheduler scheduler =
            READ("train-master-0", OPERATOR, masters[i], "WORLD_SIZE=3", "RANK=0");
        assert_string_equal(scheduler.name, "Kubeflow");
        assert_value(scheduler.id, "train", "MASTER_ADDR");
        assert_value(scheduler.endpoint, "train-master-0:23456", "MASTER_ADDR");
        assert_value(scheduler.node_rank, "0", "RANK");
    }
    struct mst__scheduler scheduler =
        READ("train-worker-1", OPERATOR, masters[0], "WORLD_SIZE=3", "RANK=2");
    assert_value(scheduler.id, "train", "MASTER_ADDR");
    assert_value(scheduler.endpoint, "train-master-0:23456", "MASTER_ADDR");
    assert_value(scheduler.node_rank, "2", "RANK");
    assert_value(scheduler.nnodes, "3", "WORLD_SIZE");
    /* An address with a domain, and a name of its own. */
    scheduler = READ("x", OPERATOR, "MASTER_ADDR=a-master-0.ns.svc", "WORLD_SIZE=2", "RANK=1");
    assert_value(scheduler.id, "a", "MASTER_ADDR");
    assert_value(scheduler.endpoint, "a-master-0.ns.svc:23456", "MASTER_ADDR");
    scheduler = READ("x", OPERATOR, "MASTER_ADDR=head", "WORLD_SIZE=2", "RANK=1");
    assert_value(scheduler.id, "head", "MASTER_ADDR");
    /* The variables of an agent's worker are not the operator's. */
    scheduler = READ("web-1", OPERATOR, "MASTER_ADDR=10.0.0.7", "WORLD_SIZE=2", "RANK=1",
                     "TORCHELASTIC_RUN_ID=x");
    assert_value(scheduler.id, "web", "the pod's host name");
#undef OPERATOR
}

static void mpi(void **state)
{
    (void)state;
    struct mst__scheduler scheduler =
        READ("h", "OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_RANK=3", "SLURM_JOB_ID=1",
             "OMPI_COMM_WORLD_LOCAL_SIZE=4", "PMIX_NAMESPACE=prterun-7@1");
    assert_string_equal(scheduler.name, "Open MPI");
    assert_value(scheduler.nnodes, "4", "OMPI_COMM_WORLD_SIZE");
    assert_value(scheduler.node_rank, "3", "OMPI_COMM_WORLD_RANK");
    assert_value(scheduler.id, "prterun-7@1", "PMIX_NAMESPACE");
    assert_non_null(scheduler.endpoint.text);
    assert_string_equal(scheduler.endpoint.origin, "OMPI_COMM_WORLD_LOCAL_SIZE");
    assert_int_equal(strncmp(scheduler.endpoint.text, "localhost:", 10), 0);
    int port = port_in(scheduler.endpoint.text);
    assert_in_range(port, 29400, 32399);
    /* Two jobs on one host do not meet. What follows are the variables of Open MPI 4.1. */
    scheduler = READ("h", "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_RANK=1",
                     "OMPI_COMM_WORLD_LOCAL_RANK=1", "OMPI_COMM_WORLD_LOCAL_SIZE=2",
                     "OMPI_COMM_WORLD_NODE_RANK=1", "OMPI_MCA_ess_base_jobid=662044673");
    assert_value(scheduler.id, "662044673", "OMPI_MCA_ess_base_jobid");
    assert_value(scheduler.local_rank, "1", "OMPI_COMM_WORLD_LOCAL_RANK");
    assert_value(scheduler.local_size, "2", "OMPI_COMM_WORLD_LOCAL_SIZE");
    assert_int_not_equal(port_in(scheduler.endpoint.text), port);
    port = port_in(scheduler.endpoint.text);
    scheduler = READ("h", "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_SIZE=2",
                     "OMPI_MCA_ess_base_jobid=662110209");
    assert_int_not_equal(port_in(scheduler.endpoint.text), port);
    scheduler = READ("h", "PMI_RANK=1", "PMI_SIZE=2", "PMI_JOBID=kvs_1", "MPI_LOCALNRANKS=1");
    assert_string_equal(scheduler.name, "PMI");
    assert_value(scheduler.node_rank, "1", "PMI_RANK");
    assert_value(scheduler.id, "kvs_1", "PMI_JOBID");
    assert_null(scheduler.endpoint.text); /* more than this host */
    scheduler = READ("h", "PMI_RANK=1", "PMI_SIZE=4", "MPI_LOCALNRANKS=2", "MPI_LOCALRANKID=1");
    assert_value(scheduler.local_rank, "1", "MPI_LOCALRANKID");
    assert_value(scheduler.local_size, "2", "MPI_LOCALNRANKS");
    scheduler = READ("h", "PMIX_RANK=1", "PMIX_NAMESPACE=n");
    assert_string_equal(scheduler.name, "PMIx");
}

static void flux_lsf_pbs(void **state)
{
    (void)state;
    struct mst__scheduler scheduler =
        READ("h", "FLUX_JOB_ID=f3Xk", "FLUX_JOB_SIZE=3", "FLUX_TASK_RANK=2", "FLUX_JOB_NNODES=3");
    assert_string_equal(scheduler.name, "Flux");
    assert_value(scheduler.id, "f3Xk", "FLUX_JOB_ID");
    assert_value(scheduler.nnodes, "3", "FLUX_JOB_SIZE");
    assert_value(scheduler.node_rank, "2", "FLUX_TASK_RANK");
    /* Without the tasks of this host, local ranks are not known. */
    scheduler = READ("h", "FLUX_JOB_ID=f3Xk", "FLUX_JOB_SIZE=5", "FLUX_TASK_RANK=4",
                     "FLUX_TASK_LOCAL_ID=1", "FLUX_JOB_NNODES=2");
    assert_null(scheduler.local_rank.text);
    assert_null(scheduler.local_size.text);
    scheduler = READ("h", "FLUX_JOB_ID=f3Xk", "FLUX_JOB_SIZE=6", "FLUX_TASK_RANK=4",
                     "FLUX_TASK_LOCAL_ID=1", "FLUX_JOB_NNODES=2");
    assert_value(scheduler.local_rank, "1", "FLUX_TASK_LOCAL_ID");
    assert_value(scheduler.local_size, "3", "FLUX_JOB_SIZE");
    scheduler = READ("hb.site", "LSB_JOBID=12", "LSB_MCPU_HOSTS=ha 8 hb 8 ");
    assert_string_equal(scheduler.name, "LSF");
    assert_value(scheduler.id, "lsf-12", "LSB_JOBID");
    assert_value(scheduler.hosts, "ha,hb", "LSB_MCPU_HOSTS");
    assert_value(scheduler.nnodes, "2", "LSB_MCPU_HOSTS");
    assert_value(scheduler.node_rank, "1", "LSB_MCPU_HOSTS");
    assert_value(scheduler.endpoint, "ha:30132", "LSB_MCPU_HOSTS");
    /* A name that begins another one is another host, on either side; domains may be left out. */
    scheduler = READ("node10.site", "LSB_JOBID=1", "LSB_HOSTS=node1 node10 node100");
    assert_value(scheduler.node_rank, "1", "LSB_HOSTS");
    scheduler = READ("node1", "LSB_JOBID=1", "LSB_HOSTS=node10.site node1.site");
    assert_value(scheduler.node_rank, "1", "LSB_HOSTS");
    scheduler = READ("node1.a", "LSB_JOBID=1", "LSB_HOSTS=node1.b node1.a");
    assert_value(scheduler.node_rank, "1", "LSB_HOSTS");
    scheduler = READ("node1", "LSB_JOBID=1", "LSB_MCPU_HOSTS=node10 8 node1 8");
    assert_value(scheduler.hosts, "node10,node1", "LSB_MCPU_HOSTS");
    /* Slots may be dealt out in turn: each host counts once. */
    scheduler = READ("b", "LSB_JOBID=1", "LSB_HOSTS=a b a b bb");
    assert_value(scheduler.hosts, "a,b,bb", "LSB_HOSTS");
    assert_value(scheduler.nnodes, "3", "LSB_HOSTS");
    assert_value(scheduler.node_rank, "1", "LSB_HOSTS");
    /* Jobs of an array have one number. */
    scheduler = READ("ha", "LSB_JOBID=12", "LSB_JOBINDEX=3", "LSB_HOSTS=ha hb");
    assert_value(scheduler.id, "lsf-12.3", "LSB_JOBID, LSB_JOBINDEX");
    assert_value(scheduler.endpoint, "ha:30135", "LSB_HOSTS");
    char path[] = "/tmp/muster-nodefile-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "p1\np1\np2\n", 9), 9);
    (void)close(fd);
    char variable[100];
    (void)snprintf(variable, sizeof variable, "PBS_NODEFILE=%s", path);
    scheduler = READ("p2", "PBS_JOBID=33[5].server", variable);
    assert_value(scheduler.endpoint, "p1:31418", "PBS_NODEFILE");
    scheduler = READ("p2", "PBS_JOBID=33.server", variable, "NCPUS=4");
    (void)unlink(path);
    assert_string_equal(scheduler.name, "PBS");
    assert_value(scheduler.id, "pbs-33.server", "PBS_JOBID");
    assert_value(scheduler.hosts, "p1,p2", "PBS_NODEFILE");
    assert_value(scheduler.node_rank, "1", "PBS_NODEFILE");
    assert_value(scheduler.endpoint, "p1:31413", "PBS_NODEFILE");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(none, reset),
        cmocka_unit_test_teardown(slurm, reset),
        cmocka_unit_test_teardown(slurm_lists, reset),
        cmocka_unit_test_teardown(slurm_steps, reset),
        cmocka_unit_test_teardown(slurm_ports, reset),
        cmocka_unit_test_teardown(slurm_batch, reset),
        cmocka_unit_test_teardown(slurm_tasks, reset),
        cmocka_unit_test_teardown(kubernetes, reset),
        cmocka_unit_test_teardown(kubeflow, reset),
        cmocka_unit_test_teardown(mpi, reset),
        cmocka_unit_test_teardown(flux_lsf_pbs, reset),
    };
    return MST_RUN_TESTS(tests);
}
