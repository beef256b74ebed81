/* core/job_message.c - the names of messages. */
#include "core/job_message.h"

#include <stddef.h>

const char *mst__job_type_name(enum mst__job_type type)
{
    switch (type) {
#define JOB_TYPE_NAME(name, number, text) \
    case MST_JOB_##name:                  \
        return text;
        MST_JOB_TYPE_MAP(JOB_TYPE_NAME)
#undef JOB_TYPE_NAME
    }
    return NULL;
}

const char *mst__job_gone_name(enum mst__job_gone gone)
{
    static const char *const names[] = {"", "lost", "left", "finished"};
    return (size_t)gone < sizeof names / sizeof names[0] ? names[gone] : "";
}
