/* cli/main.c - the muster binary: finds the subcommand. */
#include <stdio.h>
#include <string.h>

#include "base/nearest.h"
#include "cli/cli.h"
#include "cli/log.h"

static const struct mst__cli_command commands[] = {
    {"serve", "run a store server that PyTorch's clients understand", mst__cli_serve},
    {"run", "run a program as the workers of an elastic job", mst__cli_run},
    {"join", "take part in a rendezvous from a shell", mst__cli_join},
    {"ps", "show the workers of a job", mst__cli_ps},
    {"logs", "show the log of a worker, wherever it runs", mst__cli_logs},
    {"restart", "restart the workers of a job", mst__cli_restart},
    {"drain", "have a node leave its job", mst__cli_drain},
    {"stop", "stop a job", mst__cli_stop},
    {"status", "show who takes part in a rendezvous", mst__cli_status},
    {"close", "mark a rendezvous as closed", mst__cli_close},
    {"replay", "tell what a server's journal has recorded", mst__cli_replay},
    {"store", "read and write any store", mst__cli_store},
    {"etcd", "run a private etcd", mst__cli_etcd},
    {"demo", "show a rendezvous at work on this machine", mst__cli_demo},
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
    (void)fprintf(out, "\n`muster help COMMAND` tells more; so does `man muster`.\n");
}

static const struct mst__cli_command *find_command(const char *name)
{
    for (size_t i = 0; i < COMMANDS_COUNT; i++) {
        if (strcmp(name, commands[i].name) == 0) {
            return &commands[i];
        }
    }
    return NULL;
}

static int complain(const char *name)
{
    const char *names[COMMANDS_COUNT];
    for (size_t i = 0; i < COMMANDS_COUNT; i++) {
        names[i] = commands[i].name;
    }
    const char *nearest = mst__nearest(name, names, COMMANDS_COUNT);
    if (nearest != NULL) {
        return mst__cli_usage_error("muster", "there is no command '%s'; did you mean %s?", name,
                                    nearest);
    }
    return mst__cli_usage_error("muster", "there is no command '%s'", name);
}

/* `muster help`, and `muster help NAME` for `muster NAME --help`. Other words are not passed on,
 * because some commands would execute them. */
static int help(int argc, char **argv)
{
    if (argc == 1) {
        print_help(stdout);
        return MST_EXIT_OK;
    }
    const struct mst__cli_command *command = find_command(argv[1]);
    if (command == NULL) {
        return complain(argv[1]);
    }
    char option[] = "--help";
    char *words[] = {argv[1], option, NULL};
    return command->run(2, words);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        print_help(stderr);
        return MST_EXIT_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
        print_help(stdout);
        return MST_EXIT_OK;
    }
    if (strcmp(name, "help") == 0) {
        return help(argc - 1, argv + 1);
    }
    if (strcmp(name, "--version") == 0) {
        (void)printf("muster %s\n", mst_version());
        return MST_EXIT_OK;
    }
    const struct mst__cli_command *command = find_command(name);
    if (command == NULL) {
        return complain(name);
    }
    int exit_code = command->run(argc - 1, argv + 1);
    mst__cli_log_close();
    return exit_code;
}
