/* version.c - the version of the library that runs. */
#include <muster/version.h>

const char *mst_version(void)
{
    return MST_VERSION;
}

int mst_version_number(void)
{
    return MST_VERSION_NUMBER;
}
