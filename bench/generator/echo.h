/* bench/generator/echo.h - the floor: connections with one echoed message each. */
#ifndef MST_BENCH_ECHO_H
#define MST_BENCH_ECHO_H

#include "bench/generator/bench.h"

/* Listen on a free port of the loopback address, write it as an int to @port_fd, and echo all
 * input. Never returns. */
_Noreturn void mst__bench_echo_run(int port_fd);

/* Open @count connections to such a server, send a message of the size of an announcement on each,
 * and wait until all are echoed: the time that this took. */
int mst__bench_echo(const struct mst__bench_target *target,
                    size_t count,
                    double *ret_seconds,
                    struct mst_err *reterr);

#endif /* MST_BENCH_ECHO_H */
