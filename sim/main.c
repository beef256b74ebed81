/* sim/main.c - muster-sim: one seed with its history, or many with their rate. */
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/number.h"
#include "sim/authority/authority.h"
#include "sim/legacy/legacy.h"
#include "sim/mutant.h"
#include "sim/record/record.h"

#define PROGRESS_NS INT64_C(2000000000)

/* The simulated rendezvous. */
enum machine {
    MACHINE_ALL, /* the seed chooses the machine */
    MACHINE_RECORD,
    MACHINE_LEGACY,
    MACHINE_AUTHORITY,
    MACHINE_AGENT,
};
#define MACHINE_COUNT 5
static const char *const machine_names[MACHINE_COUNT] = {"all", "record", "legacy", "authority",
                                                         "agent"};

/* The memory of a run; one machine at a time. */
struct place {
    struct mst__sim_world world;
    struct mst__sim_legacy legacy;
    struct mst__sim_auth authority;
};

struct options {
    enum machine machine;
    bool has_seed;
    uint64_t seed;
    bool has_runs;
    int64_t runs;
    int64_t seconds; /* 0 = no limit */
    uint64_t first_seed;
    bool has_first_seed;
    bool stops; /* at the first broken rule */
    const char *mutant;
    bool lists_mutants;
    bool wants_help;
};

struct totals {
    uint64_t seeds;
    uint64_t broken;
    uint64_t first_broken; /* the number of seeds until then */
    uint64_t rounds;
    uint64_t returns;
    uint64_t events;
    uint64_t writes;
    uint64_t losses;
    uint64_t doubts;
    uint64_t torn;
    uint64_t late;
    int64_t virtual_us;
    int64_t settle_permille; /* the most */
    uint64_t faults[MST_SIM_FAULT_COUNT];
    int64_t started_ns;
    int64_t told_ns;
};

static const char usage[] =
    "usage: muster-sim --seed N              run one seed and print its history\n"
    "       muster-sim --runs N              run many\n"
    "       muster-sim [--seconds S]         run until stopped, with progress\n"
    "\n"
    "  --machine M      record, legacy (torch's old etcd protocol), authority, agent (launchers "
    "on\n"
    "                   authorities), or all: in turn (default)\n"
    "  --first-seed N   where to begin (with --runs: 1, else the time of day)\n"
    "  --stop           end at the first broken rule\n" MST_SIM_MUTANT_USAGE "\n"
    "Exit status: 0 no rule was broken, 1 one was, 2 wrong usage.\n";

static bool parse_number(const char *text, int64_t *ret_number)
{
    return mst__number_parse(mst_bytes_str(text), 0, INT64_MAX, ret_number);
}

static bool parse_machine(struct options *options, const char *value)
{
    for (int i = 0; i < MACHINE_COUNT; i++) {
        if (strcmp(value, machine_names[i]) == 0) {
            options->machine = (enum machine)i;
            return true;
        }
    }
    return false;
}

/* Parse an option with a value; false if it is unknown or the number is invalid. */
static bool parse_option(struct options *options, const char *name, const char *value)
{
    int64_t number = 0;
    bool is_number = parse_number(value, &number);
    if (strcmp(name, "--seed") == 0) {
        options->has_seed = true;
        options->seed = (uint64_t)number;
    } else if (strcmp(name, "--runs") == 0) {
        options->has_runs = true;
        options->runs = number;
    } else if (strcmp(name, "--seconds") == 0) {
        options->seconds = number;
        is_number = is_number && number > 0 && number < INT64_C(1000000000);
    } else if (strcmp(name, "--first-seed") == 0) {
        options->has_first_seed = true;
        options->first_seed = (uint64_t)number;
    } else if (strcmp(name, "--machine") == 0) {
        return parse_machine(options, value);
    } else if (strcmp(name, "--mutant") == 0 && mst__sim_mutant_set(value)) {
        options->mutant = value;
        return true;
    } else {
        return false;
    }
    return is_number;
}

static bool parse(int argc, char **argv, struct options *options)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--stop") == 0) {
            options->stops = true;
        } else if (strcmp(argv[i], "--mutants") == 0 && mst__sim_mutant_count() > 0) {
            options->lists_mutants = true;
        } else if (strcmp(argv[i], "--help") == 0) {
            options->wants_help = true;
        } else if (i + 1 < argc && parse_option(options, argv[i], argv[i + 1])) {
            i++;
        } else {
            (void)fprintf(stderr,
                          "muster-sim: '%s' is no option, or its value is missing or wrong\n%s",
                          argv[i], usage);
            return false;
        }
    }
    return true;
}

static void add_up(struct totals *totals, const struct mst__sim_stats *stats)
{
    totals->seeds++;
    totals->rounds += stats->rounds;
    totals->returns += stats->returns;
    totals->events += stats->events;
    totals->writes += stats->writes;
    totals->losses += stats->losses;
    totals->doubts += stats->doubts;
    totals->torn += stats->torn;
    totals->late += stats->late;
    totals->virtual_us += stats->virtual_us;
    if (stats->settle_permille > totals->settle_permille) {
        totals->settle_permille = stats->settle_permille;
    }
    for (size_t i = 0; i < MST_SIM_FAULT_COUNT; i++) {
        totals->faults[i] += stats->faults[i];
    }
}

static void tell_rate(struct totals *totals, int64_t now_ns)
{
    double seconds = (double)(now_ns - totals->started_ns) / 1e9;
    (void)printf("%" PRIu64 " seeds, %" PRIu64 " broken, %" PRIu64
                 " rounds in %.1f s: %.0f seeds/s, "
                 "%.0f rounds/s\n",
                 totals->seeds, totals->broken, totals->rounds, seconds,
                 (double)totals->seeds / seconds, (double)totals->rounds / seconds);
    (void)fflush(stdout);
    totals->told_ns = now_ns;
}

static void tell_totals(const struct totals *totals)
{
    (void)printf("%" PRIu64 " results, %" PRIu64 " writes of which %" PRIu64 " lost, %" PRIu64
                 " doubtful rounds left, %" PRIu64 " torn by peers, %" PRIu64
                 " late answers dropped, %" PRIu64 " events, %" PRId64
                 " h of virtual time, at rest after %" PRId64 " %% of the bound at most; faults:",
                 totals->returns, totals->writes, totals->losses, totals->doubts, totals->torn,
                 totals->late, totals->events, totals->virtual_us / 3600 / MST_SIM_SECOND_US,
                 totals->settle_permille / 10);
    for (size_t i = 0; i < MST_SIM_FAULT_COUNT; i++) {
        (void)printf(" %" PRIu64 " %s", totals->faults[i],
                     mst__sim_fault_name((enum mst__sim_fault)i));
    }
    (void)printf("\n");
}

static bool run_record(struct mst__sim_world *world,
                       uint64_t seed,
                       FILE *history,
                       struct totals *totals)
{
    bool is_fine = mst__sim_world_run(world, seed, history);
    mst__sim_world_close(world);
    add_up(totals, &world->stats);
    if (!is_fine) {
        (void)printf("seed %" PRIu64 " breaks rule %s: %s\n", seed, world->rule, world->broken);
    }
    return is_fine;
}

static bool run_legacy(struct mst__sim_legacy *legacy,
                       uint64_t seed,
                       FILE *history,
                       struct totals *totals)
{
    bool is_fine = mst__sim_legacy_run(legacy, seed, history);
    mst__sim_legacy_close(legacy);
    add_up(totals, &legacy->stats);
    if (!is_fine) {
        (void)printf("seed %" PRIu64 " breaks rule %s: %s\n", seed, legacy->rule, legacy->broken);
    }
    return is_fine;
}

static bool run_authority(struct mst__sim_auth *authority,
                          uint64_t seed,
                          bool has_agents,
                          FILE *history,
                          struct totals *totals)
{
    bool is_fine = has_agents ? mst__sim_auth_run_agents(authority, seed, history)
                              : mst__sim_auth_run(authority, seed, history);
    mst__sim_auth_close(authority);
    add_up(totals, &authority->stats);
    if (!is_fine) {
        (void)printf("seed %" PRIu64 " breaks rule %s: %s\n", seed, authority->rule,
                     authority->broken);
    }
    return is_fine;
}

static enum machine machine_of(const struct options *options, uint64_t seed)
{
    static const enum machine turns[] = {MACHINE_RECORD,    MACHINE_LEGACY,   MACHINE_RECORD,
                                         MACHINE_AUTHORITY, MACHINE_RECORD,   MACHINE_LEGACY,
                                         MACHINE_AGENT,     MACHINE_AUTHORITY};
    return options->machine == MACHINE_ALL ? turns[seed % 8] : options->machine;
}

static void tell_replay(const struct options *options, uint64_t seed)
{
    (void)printf("  replay with: muster-sim%s%s --machine %s --seed %" PRIu64 "\n",
                 options->mutant != NULL ? " --mutant " : "",
                 options->mutant != NULL ? options->mutant : "",
                 machine_names[machine_of(options, seed)], seed);
}

/* The current run, for a failed assertion in it. */
static const struct options *running_options;
static uint64_t running_seed;

/* A failed assertion of the product has printed its message and aborts. */
static void on_abort(int number)
{
    (void)number; /* SIGABRT */
    (void)printf("seed %" PRIu64 " breaks rule assertion: one of the product's own has failed\n",
                 running_seed);
    tell_replay(running_options, running_seed);
    (void)fflush(stdout); /* nothing can be done about it here */
    _exit(1);
}

/* Returns whether no rule was broken. */
static bool run_seed(const struct options *options,
                     struct place *place,
                     uint64_t seed,
                     FILE *history,
                     struct totals *totals)
{
    enum machine machine = machine_of(options, seed);
    running_options = options;
    running_seed = seed;
    bool is_fine;
    if (machine == MACHINE_LEGACY) {
        is_fine = run_legacy(&place->legacy, seed, history, totals);
    } else if (machine == MACHINE_AUTHORITY || machine == MACHINE_AGENT) {
        is_fine = run_authority(&place->authority, seed, machine == MACHINE_AGENT, history, totals);
    } else {
        is_fine = run_record(&place->world, seed, history, totals);
    }
    if (is_fine) {
        return true;
    }
    totals->broken++;
    if (history == NULL) {
        tell_replay(options, seed);
    }
    return false;
}

/* Run seeds until all runs are done or the time is over. */
static void run_many(const struct options *options, struct place *place, struct totals *totals)
{
    uint64_t seed = options->has_first_seed ? options->first_seed : 1;
    if (!options->has_runs && !options->has_first_seed) {
        seed = (uint64_t)mst__clock_wall_us();
    }
    (void)printf("muster-sim: from seed %" PRIu64 "\n", seed);
    totals->started_ns = totals->told_ns = mst__clock_ns();
    int64_t end_ns = totals->started_ns + options->seconds * INT64_C(1000000000);
    int64_t now_ns = totals->started_ns;
    for (int64_t i = 0; !options->has_runs || i < options->runs; i++, seed++) {
        bool is_fine = run_seed(options, place, seed, NULL, totals);
        now_ns = mst__clock_ns();
        if (now_ns - totals->told_ns >= PROGRESS_NS) {
            tell_rate(totals, now_ns);
        }
        if ((!is_fine && options->stops) || (options->seconds > 0 && now_ns >= end_ns)) {
            break;
        }
    }
    tell_rate(totals, now_ns);
    tell_totals(totals);
    (void)printf("%" PRIu64 " passed, %" PRIu64 " failed, 0 skipped\n",
                 totals->seeds - totals->broken, totals->broken);
}

int main(int argc, char **argv)
{
    struct options options = {.has_seed = false};
    if (!parse(argc, argv, &options)) {
        return 2;
    }
    if (options.wants_help) {
        (void)printf("%s", usage);
        return 0;
    }
    if (options.lists_mutants) {
        mst__sim_mutant_list(stdout);
        return 0;
    }
    const struct sigaction on_abort_action = {.sa_handler = on_abort};
    int rv = sigaction(SIGABRT, &on_abort_action, NULL);
    MST_ASSERT(rv == 0);
    struct place *place = mst__malloc(sizeof *place);
    if (place == NULL) {
        (void)fprintf(stderr, "muster-sim: out of memory\n");
        return 1;
    }
    struct totals totals = {.seeds = 0};
    if (options.has_seed) {
        (void)run_seed(&options, place, options.seed, stdout, &totals); /* counted in totals */
        tell_totals(&totals);
    } else {
        run_many(&options, place, &totals);
    }
    mst__free(place);
    return totals.broken == 0 ? 0 : 1;
}
