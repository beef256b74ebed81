/* base/log_limit.c - the events and the times of their last lines. */
#include "base/log_limit.h"

#include <stdio.h>
#include <string.h>

#define SECOND_US 1000000

/* The entry of the event at the start of @line. There are few events. If there are more than
 * entries, the rest shares the last entry: they are logged too little, never too much. */
static struct mst__log_limit_event *limit_find(struct mst__log_limit *limit, const char *line)
{
    const char *name = strncmp(line, "ev=", 3) == 0 ? line + 3 : line;
    size_t size = strcspn(name, " ");
    size = size < MST_LOG_EVENT_SIZE ? size : MST_LOG_EVENT_SIZE - 1;
    for (size_t i = 0; i < limit->events_count; i++) {
        struct mst__log_limit_event *event = &limit->events[i];
        if (strlen(event->name) == size && memcmp(event->name, name, size) == 0) {
            return event;
        }
    }
    if (limit->events_count == MST_LOG_EVENTS_MAX) {
        return &limit->events[MST_LOG_EVENTS_MAX - 1];
    }
    struct mst__log_limit_event *event = &limit->events[limit->events_count++];
    if (limit->events_count == MST_LOG_EVENTS_MAX) {
        (void)snprintf(event->name, sizeof event->name, "other");
    } else {
        memcpy(event->name, name, size);
    }
    return event;
}

bool mst__log_limit_take(struct mst__log_limit *limit,
                         enum mst_log_level level,
                         const char *line,
                         int64_t now_us)
{
    struct mst__log_limit_event *event = limit_find(limit, line);
    int64_t *oldest_us = &event->passed_us[event->passed_count % MST_LOG_LINES_PER_SECOND];
    if (event->passed_count < MST_LOG_LINES_PER_SECOND || now_us - *oldest_us >= SECOND_US) {
        *oldest_us = now_us;
        event->passed_count++;
        return true;
    }
    if (event->suppressed_count == 0) {
        event->suppressed_us = now_us;
        event->level = level;
    }
    event->level = level > event->level ? level : event->level;
    event->suppressed_count++;
    return false;
}

bool mst__log_limit_next(struct mst__log_limit *limit,
                         int64_t now_us,
                         struct mst__log_summary *ret_summary)
{
    for (size_t i = 0; i < limit->events_count; i++) {
        struct mst__log_limit_event *event = &limit->events[i];
        if (event->suppressed_count > 0 && now_us - event->suppressed_us >= SECOND_US) {
            *ret_summary = (struct mst__log_summary){
                .event = event->name,
                .level = event->level,
                .count = event->suppressed_count,
            };
            event->suppressed_count = 0;
            return true;
        }
    }
    return false;
}

int64_t mst__log_limit_due_us(const struct mst__log_limit *limit)
{
    int64_t due_us = INT64_MAX;
    for (size_t i = 0; i < limit->events_count; i++) {
        const struct mst__log_limit_event *event = &limit->events[i];
        if (event->suppressed_count > 0 && event->suppressed_us + SECOND_US < due_us) {
            due_us = event->suppressed_us + SECOND_US;
        }
    }
    return due_us;
}
