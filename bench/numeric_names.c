/* bench/numeric_names.c - preloaded into PyTorch's servers: names of peers stay numbers.
 *
 * They look up the name of every peer that connects, by DNS and inside their event loop, and stand
 * still until the resolver answers or its five seconds are over. What would be measured then is the
 * resolver. With this they are spared the wait. */
#include <dlfcn.h>
#include <netdb.h>
#include <string.h>
#include <sys/socket.h>

typedef int (
    *getnameinfo_fn)(const struct sockaddr *, socklen_t, char *, socklen_t, char *, socklen_t, int);

int getnameinfo(const struct sockaddr *address,
                socklen_t address_size,
                char *host,
                socklen_t host_size,
                char *service,
                socklen_t service_size,
                int flags)
{
    void *symbol = dlsym(RTLD_NEXT, "getnameinfo");
    if (symbol == NULL) {
        return EAI_FAIL;
    }
    getnameinfo_fn real = NULL;
    memcpy(&real, &symbol, sizeof real); /* C has no cast from data to a function */
    return real(address, address_size, host, host_size, service, service_size,
                flags | NI_NUMERICHOST);
}
