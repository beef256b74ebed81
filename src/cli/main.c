/* cli/main.c - the muster binary: finds the subcommand. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

static const struct mst__cli_command commands[] = {
    {"serve", "run a store server that PyTorch's clients understand", mst__cli_serve},
    {"join", "take part in a rendezvous from a shell", mst__cli_join},
    {"status", "show who takes part in a rendezvous", mst__cli_status},
    {"close", "mark a rendezvous as closed", mst__cli_close},
    {"store", "read and write any store", mst__cli_store},
    {"etcd", "run a private etcd", mst__cli_etcd},
    {"demo", "show a rendezvous at work on this machine", mst__cli_demo},
    {"bench", "measure stores and rendezvous", mst__cli_bench},
};
#define COMMANDS_COUNT (sizeof commands / sizeof commands[0])

static void print_help(FILE *out)
{
    (void)fprintf(out,
                  "muster %s: elastic rendezvous for distributed jobs\n\n"
                  "Usage: muster COMMAND [options]\n\nCommands:\n",
                  mst_version());
    for (size_t i = 0; i < COMMANDS_COUNT; i++) {
        (void)fprintf(out, "  %-8s %s\n", commands[i].name, commands[i].summary);
    }
    (void)fprintf(out, "\n`muster COMMAND --help` tells more; so does `man muster`.\n");
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        print_help(stderr);
        return MST_EXIT_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        print_help(stdout);
        return MST_EXIT_OK;
    }
    if (strcmp(name, "--version") == 0) {
        (void)printf("muster %s\n", mst_version());
        return MST_EXIT_OK;
    }
    for (size_t i = 0; i < COMMANDS_COUNT; i++) {
        if (strcmp(name, commands[i].name) == 0) {
            return commands[i].run(argc - 1, argv + 1);
        }
    }
    (void)fprintf(stderr, "muster: there is no command '%s'\n\n", name);
    print_help(stderr);
    return MST_EXIT_USAGE;
}
