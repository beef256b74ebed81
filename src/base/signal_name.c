/* base/signal_name.c - names of signals. The table is ours: only some C libraries can tell the name
 * "SIGTERM" of a number. */
#include "base/signal_name.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/number.h"

static const struct {
    int number;
    const char *name;
} signals[] = {
    {SIGHUP, "SIGHUP"},       {SIGINT, "SIGINT"},   {SIGQUIT, "SIGQUIT"},   {SIGILL, "SIGILL"},
    {SIGTRAP, "SIGTRAP"},     {SIGABRT, "SIGABRT"}, {SIGBUS, "SIGBUS"},     {SIGFPE, "SIGFPE"},
    {SIGKILL, "SIGKILL"},     {SIGUSR1, "SIGUSR1"}, {SIGSEGV, "SIGSEGV"},   {SIGUSR2, "SIGUSR2"},
    {SIGPIPE, "SIGPIPE"},     {SIGALRM, "SIGALRM"}, {SIGTERM, "SIGTERM"},   {SIGCHLD, "SIGCHLD"},
    {SIGCONT, "SIGCONT"},     {SIGSTOP, "SIGSTOP"}, {SIGTSTP, "SIGTSTP"},   {SIGTTIN, "SIGTTIN"},
    {SIGTTOU, "SIGTTOU"},     {SIGURG, "SIGURG"},   {SIGXCPU, "SIGXCPU"},   {SIGXFSZ, "SIGXFSZ"},
    {SIGVTALRM, "SIGVTALRM"}, {SIGPROF, "SIGPROF"}, {SIGWINCH, "SIGWINCH"}, {SIGIO, "SIGIO"},
    {SIGPWR, "SIGPWR"},       {SIGSYS, "SIGSYS"},
#ifdef SIGSTKFLT /* not on mips */
    {SIGSTKFLT, "SIGSTKFLT"},
#endif
};
#define SIGNALS_COUNT (sizeof signals / sizeof signals[0])

int mst__signal_number(struct mst_bytes name)
{
    int64_t number = 0;
    if (mst__number_parse(name, 1, SIGRTMAX, &number)) {
        return (int)number;
    }
    for (size_t i = 0; i < SIGNALS_COUNT; i++) {
        const char *full = signals[i].name;
        if ((name.size == strlen(full) &&
             strncasecmp(full, (const char *)name.data, name.size) == 0) ||
            (name.size + 3 == strlen(full) &&
             strncasecmp(full + 3, (const char *)name.data, name.size) == 0)) {
            return signals[i].number;
        }
    }
    return 0;
}

const char *mst__signal_name(int number)
{
    for (size_t i = 0; i < SIGNALS_COUNT; i++) {
        if (signals[i].number == number) {
            return signals[i].name;
        }
    }
    return NULL;
}
