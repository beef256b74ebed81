/* bench/generator/main.c - muster-bench: load generators that measure stores and rendezvous. */
#include <stdio.h>
#include <string.h>

#include "bench/generator/bench.h"
#include "cli/cli.h"
#include "cli/log.h"

#define COMMAND "muster-bench"

static const char help[] =
    "Measure a store server, or how long nodes need to meet.\n\n"
    "Usage: muster-bench store --port PORT [options]\n"
    "       muster-bench rendezvous [options]\n\n"
    "`muster-bench store --help` and `muster-bench rendezvous --help` tell more.\n";

static int run(int argc, char **argv)
{
    if (argc < 2) {
        (void)fputs(help, stderr);
        return MST_EXIT_USAGE;
    }
    if (strcmp(argv[1], "store") == 0) {
        return mst__bench_store(argc - 1, argv + 1);
    }
    if (strcmp(argv[1], "rendezvous") == 0) {
        return mst__bench_rendezvous(argc - 1, argv + 1);
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        (void)fputs(help, stdout);
        return MST_EXIT_OK;
    }
    return mst__cli_usage_error(COMMAND, "unknown '%s'; choose store or rendezvous", argv[1]);
}

int main(int argc, char **argv)
{
    int exit_code = run(argc, argv);
    if ((fflush(stdout) != 0 || ferror(stdout) != 0) && exit_code == MST_EXIT_OK) {
        mst__cli_say(COMMAND ": cannot write to standard output");
        return MST_EXIT_FAILED;
    }
    return exit_code;
}
