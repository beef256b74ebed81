/* base/banned.h - calls that are too easy to get wrong, turned into compile errors.
 * Forced into every translation unit by the build. */
#ifndef MST_BANNED_H
#define MST_BANNED_H

/* Headers that declare the banned names come first, so that their declarations stay legal. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MST_BANNED(name) mst__banned_##name##_see_src_base_banned_h

#undef strcpy
#undef strcat
#undef strncpy
#undef strncat
#undef strtok
#undef sprintf
#undef vsprintf
#undef atoi
#undef atol
#undef atoll
#undef gets
#undef gmtime
#undef localtime
#undef ctime
#undef asctime
#undef signal
#undef rand
#undef srand
#undef alloca

#define strcpy MST_BANNED(strcpy)
#define strcat MST_BANNED(strcat)
#define strncpy MST_BANNED(strncpy)
#define strncat MST_BANNED(strncat)
#define strtok MST_BANNED(strtok)
#define sprintf MST_BANNED(sprintf)
#define vsprintf MST_BANNED(vsprintf)
#define atoi MST_BANNED(atoi)
#define atol MST_BANNED(atol)
#define atoll MST_BANNED(atoll)
#define gets MST_BANNED(gets)
#define gmtime MST_BANNED(gmtime)
#define localtime MST_BANNED(localtime)
#define ctime MST_BANNED(ctime)
#define asctime MST_BANNED(asctime)
#define signal MST_BANNED(signal)
#define rand MST_BANNED(rand)
#define srand MST_BANNED(srand)
#define alloca MST_BANNED(alloca)

#endif /* MST_BANNED_H */
