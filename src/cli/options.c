/* cli/options.c - one table per subcommand for parsing, --help and the man page. */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/nearest.h"
#include "base/number.h"
#include "cli/cli.h"

#define OPTIONS_MAX 96
#define LETTERS_SIZE 64
#define NAME_SIZE 32 /* longest name of an option */
#define HELP_WIDTH 88

/* Results of getopt: this plus the index in the table. */
#define OPTION_BASE 1000
#define OPTION_HELP 999
#define OPTION_HELP_SCDOC 998
/* The column where the explanation of an option begins. */
#define HELP_INDENT 26

bool mst__option_duration(const char *text, int64_t *ret_ms)
{
    return mst__number_parse_duration(text, ret_ms);
}

bool mst__option_size(const char *text, int64_t *ret_size)
{
    return mst__number_parse_size(text, ret_size);
}

/* --- help --- */

/* Print @text in lines of HELP_WIDTH, each indented; the first line starts at column @column. */
static void print_wrapped(const char *text, int indent, int column)
{
    while (*text != '\0') {
        int word = (int)strcspn(text, " \n");
        if (column > indent && column + 1 + word > HELP_WIDTH) {
            (void)printf("\n%*s", indent, "");
            column = indent;
        } else if (column > indent) {
            (void)putchar(' ');
            column++;
        }
        (void)printf("%.*s", word, text);
        column += word;
        text += word;
        if (*text == '\n') {
            (void)printf("\n%*s", indent, "");
            column = indent;
            text++;
        }
        text += strspn(text, " ");
    }
    (void)putchar('\n');
}

static void print_help(const struct mst__usage *usage)
{
    const char *synopsis = usage->synopsis;
    const char *lead = "Usage:";
    while (*synopsis != '\0') {
        int length = (int)strcspn(synopsis, "\n");
        (void)printf("%-6s %s %.*s\n", lead, usage->command, length, synopsis);
        synopsis += length + (synopsis[length] == '\n' ? 1 : 0);
        lead = "";
    }
    (void)putchar('\n');
    print_wrapped(usage->text, 0, 0);
    (void)printf("\nOptions:\n");
    for (size_t i = 0; i < usage->options_count; i++) {
        const struct mst__option *option = &usage->options[i];
        if (option->kind == MST_OPTION_NOT_BUILT) {
            continue;
        }
        int length = printf("  --%s%s%s", option->name, option->argument == NULL ? "" : " ",
                            option->argument == NULL ? "" : option->argument);
        if (length >= HELP_INDENT) { /* no room on the same line */
            (void)putchar('\n');
            length = 0;
        }
        (void)printf("%*s", HELP_INDENT - length, "");
        print_wrapped(option->help, HELP_INDENT, HELP_INDENT);
    }
    (void)printf("%-*s%s\n", HELP_INDENT, "  --help", "Show this.");
}

/* Escape characters that are special to scdoc. */
static void print_scdoc_escaped(const char *text)
{
    for (; *text != '\0'; text++) {
        if (strchr("_*\\#[]|~<>", *text) != NULL) {
            (void)putchar('\\');
        }
        (void)putchar(*text == '\n' ? ' ' : *text);
    }
}

static void print_help_scdoc(const struct mst__usage *usage)
{
    for (size_t i = 0; i < usage->options_count; i++) {
        const struct mst__option *option = &usage->options[i];
        if (option->kind == MST_OPTION_NOT_BUILT) {
            continue;
        }
        (void)printf("*--%s*", option->name);
        if (option->argument != NULL) {
            (void)printf(" _");
            print_scdoc_escaped(option->argument);
            (void)printf("_");
        }
        (void)printf("\n\t");
        print_scdoc_escaped(option->help);
        (void)printf("\n\n");
    }
    (void)printf("*--help*\n\tShow a summary of the options.\n");
}

/* --- parsing --- */

static bool set_number(const struct mst__usage *usage,
                       const struct mst__option *option,
                       const char *value)
{
    int64_t number = 0;
    bool valid = false;
    const char *what = "a number";
    if (option->kind == MST_OPTION_DURATION) {
        valid = mst__option_duration(value, &number);
        what = "a duration such as 250ms, 1.5s, 10, 5m";
    } else if (option->kind == MST_OPTION_SIZE) {
        valid = mst__option_size(value, &number);
        what = "a size such as 4096, 8K, 16M, 1G";
    } else {
        valid = mst__number_parse(mst_bytes_str(value), INT64_MIN, INT64_MAX, &number);
    }
    bool unbounded = option->min == 0 && option->max == 0;
    int64_t max = unbounded ? INT64_MAX : option->max;
    if (!valid) {
        (void)mst__cli_usage_error(usage->command, "--%s: '%s' is not %s", option->name, value,
                                   what);
        return false;
    }
    if (number < option->min || number > max) {
        (void)mst__cli_usage_error(
            usage->command, "--%s: %s is not within %" PRId64 " … %" PRId64 "%s", option->name,
            value, option->min, max, option->kind == MST_OPTION_DURATION ? " ms" : "");
        return false;
    }
    *(int64_t *)option->target = number;
    return true;
}

static bool set_option(const struct mst__usage *usage,
                       const struct mst__option *option,
                       const char *value)
{
    switch (option->kind) {
        case MST_OPTION_FLAG:
            *(bool *)option->target = true;
            return true;
        case MST_OPTION_TEXT:
            *(const char **)option->target = value;
            return true;
        case MST_OPTION_LIST: {
            struct mst__option_list *list = option->target;
            if (list->count == MST_OPTION_LIST_MAX) {
                (void)mst__cli_usage_error(usage->command, "--%s: given more than %d times",
                                           option->name, MST_OPTION_LIST_MAX);
                return false;
            }
            list->values[list->count++] = value;
            return true;
        }
        case MST_OPTION_NOT_BUILT:
            (void)mst__cli_usage_error(usage->command, "unknown option '--%s': %s", option->name,
                                       option->help);
            return false;
        case MST_OPTION_NUMBER:
        case MST_OPTION_SIZE:
        case MST_OPTION_DURATION:
            break;
    }
    return set_number(usage, option, value);
}

static void replace(char *text, char from, char to)
{
    for (; *text != '\0'; text++) {
        *text = *text == from ? to : *text;
    }
}

/* Report a word that getopt does not know, with the nearest option. */
static void complain(const struct mst__usage *usage, const char *word, bool lacks_value)
{
    if (lacks_value) {
        (void)mst__cli_usage_error(usage->command, "%s needs a value", word);
        return;
    }
    const char *names[OPTIONS_MAX];
    for (size_t i = 0; i < usage->options_count; i++) {
        names[i] = usage->options[i].name;
    }
    char name[64] = "";
    size_t dashes = strspn(word, "-");
    (void)snprintf(name, sizeof name, "%.*s", (int)strcspn(word + dashes, "="), word + dashes);
    replace(name, '_', '-');
    const char *nearest = mst__nearest(name, names, usage->options_count);
    if (nearest != NULL && strcmp(nearest, name) == 0) {
        (void)mst__cli_usage_error(usage->command, "--%s takes no value", name);
    } else if (nearest != NULL) {
        (void)mst__cli_usage_error(usage->command, "unknown option '%s'; did you mean --%s?", word,
                                   nearest);
    } else {
        (void)mst__cli_usage_error(usage->command, "unknown option '%s'", word);
    }
}

/* The options for getopt: with dashes, and again with underscores, as PyTorch spells its own. */
struct spellings {
    struct option list[2 * OPTIONS_MAX + 3];
    char names[OPTIONS_MAX][NAME_SIZE];
};

static void fill_spellings(const struct mst__usage *usage, struct spellings *ret)
{
    MST_ASSERT(usage->options_count <= OPTIONS_MAX);
    struct option *at = ret->list;
    for (size_t i = 0; i < usage->options_count; i++) {
        const struct mst__option *option = &usage->options[i];
        MST_ASSERT(strlen(option->name) < NAME_SIZE);
        (void)snprintf(ret->names[i], NAME_SIZE, "%s", option->name);
        replace(ret->names[i], '-', '_');
        *at = (struct option){
            .name = option->name,
            .has_arg = option->argument != NULL ? required_argument : no_argument,
            .val = OPTION_BASE + (int)i,
        };
        at[1] = *at;
        at[1].name = ret->names[i];
        at += 2;
    }
    *at++ = (struct option){.name = "help", .val = OPTION_HELP};
    *at++ = (struct option){.name = "help-scdoc", .val = OPTION_HELP_SCDOC};
    *at = (struct option){0};
}

/* The short options for getopt: "+" stops at the first word, for subcommands that run a command;
 * ":" distinguishes a missing value from an unknown option. */
static void fill_letters(const struct mst__usage *usage, char ret_text[LETTERS_SIZE])
{
    size_t used = (size_t)snprintf(ret_text, LETTERS_SIZE, "%s",
                                   usage->arguments_max == SIZE_MAX ? "+:h" : ":h");
    const struct mst__option_letter *letter = usage->letters;
    for (; letter != NULL && letter->letter != '\0'; letter++) {
        for (size_t i = 0; i < usage->options_count; i++) {
            const struct mst__option *option = &usage->options[i];
            if (strcmp(option->name, letter->name) == 0) {
                MST_ASSERT(used + 3 < LETTERS_SIZE);
                ret_text[used++] = letter->letter;
                ret_text[used] = ':';
                used += option->argument != NULL ? 1 : 0;
                ret_text[used] = '\0';
            }
        }
    }
}

/* The index of the option with the letter @c; -1 = none. */
static int find_letter(const struct mst__usage *usage, int c)
{
    const struct mst__option_letter *letter = usage->letters;
    for (; letter != NULL && letter->letter != '\0'; letter++) {
        for (size_t i = 0; i < usage->options_count && letter->letter == c; i++) {
            if (strcmp(usage->options[i].name, letter->name) == 0) {
                return (int)i;
            }
        }
    }
    return -1;
}

/* Whether @word is the full name of a long option. */
static bool is_whole(const char *word, const char *name)
{
    size_t size = strlen(name);
    if (strncmp(word, "--", 2) != 0) {
        return true; /* a letter */
    }
    word += 2;
    for (size_t i = 0; i < size; i++) {
        char c = word[i] == '_' ? '-' : word[i];
        if (c != name[i]) {
            return false;
        }
    }
    return true;
}

static bool check_arguments(const struct mst__usage *usage, int count)
{
    size_t words = (size_t)count;
    if (words >= usage->arguments_min && words <= usage->arguments_max) {
        return true;
    }
    (void)mst__cli_usage_error(usage->command, "%s arguments",
                               words < usage->arguments_min ? "missing" : "too many");
    return false;
}

bool mst__options_parse(const struct mst__usage *usage,
                        int argc,
                        char **argv,
                        int *ret_arguments,
                        int *ret_exit)
{
    struct spellings spellings = {.list = {{0}}};
    fill_spellings(usage, &spellings);
    *ret_exit = MST_EXIT_USAGE;
    opterr = 0;
    optind = 1;
    char letters[LETTERS_SIZE];
    fill_letters(usage, letters);
    for (;;) {
        int word = optind;
        int result = getopt_long(argc, argv, letters, spellings.list, NULL);
        if (result == -1) {
            break;
        }
        if (result == OPTION_HELP || result == 'h') {
            print_help(usage);
            *ret_exit = MST_EXIT_OK;
            return false;
        }
        if (result == OPTION_HELP_SCDOC) {
            print_help_scdoc(usage);
            *ret_exit = MST_EXIT_OK;
            return false;
        }
        int index = result < OPTION_BASE ? find_letter(usage, result) : result - OPTION_BASE;
        bool is_short =
            index >= 0 && usage->is_exact && !is_whole(argv[word], usage->options[index].name);
        if (index < 0 || is_short) {
            const char *culprit = argv[word < optind && index < 0 ? optind - 1 : word];
            complain(usage, culprit, result == ':');
            return false;
        }
        if (!set_option(usage, &usage->options[index], optarg)) {
            return false;
        }
    }
    if (!check_arguments(usage, argc - optind)) {
        return false;
    }
    *ret_arguments = optind;
    return true;
}
