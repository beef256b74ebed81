/* codec/datetime.c - Python's packed datetime and microseconds since 1970, in the calendar that
 * Python extends back to year 1. */
#include "codec/datetime.h"

#define DAY_S INT64_C(86400)
#define SECOND_US INT64_C(1000000)
#define YEAR_MAX 9999
#define DAYS_BEFORE_1970 719162 /* from 0001-01-01 */
#define DAYS_IN_400_YEARS 146097
#define DAYS_IN_100_YEARS 36524
#define DAYS_IN_4_YEARS 1461
#define DAYS_IN_YEAR 365

static bool datetime_is_leap(int32_t year)
{
    return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
}

/* Days of the year before the 1st of @month (1 to 13). */
static int32_t datetime_days_before_month(int32_t year, int32_t month)
{
    static const int16_t days[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 365};
    return days[month - 1] + (month > 2 && datetime_is_leap(year) ? 1 : 0);
}

static int32_t datetime_days_before_year(int32_t year)
{
    int32_t past = year - 1;
    return past * DAYS_IN_YEAR + past / 4 - past / 100 + past / 400;
}

bool mst__datetime_read(const uint8_t raw[MST_DATETIME_SIZE], int64_t *ret_us)
{
    int32_t year = raw[0] << 8 | raw[1];
    int32_t month = raw[2] & 0x7f;
    int32_t day = raw[3];
    int32_t us = raw[7] << 16 | raw[8] << 8 | raw[9];
    if (year < 1 || year > YEAR_MAX || month < 1 || month > 12 || day < 1 || raw[4] > 23 ||
        raw[5] > 59 || raw[6] > 59 || us >= SECOND_US) {
        return false;
    }
    int32_t days_before = datetime_days_before_month(year, month);
    if (day > datetime_days_before_month(year, month + 1) - days_before) {
        return false;
    }
    int64_t days = datetime_days_before_year(year) + days_before + day - 1 - DAYS_BEFORE_1970;
    int64_t seconds = days * DAY_S + raw[4] * 3600 + raw[5] * 60 + raw[6];
    *ret_us = seconds * SECOND_US + us;
    return true;
}

/* The year in which day @days since 0001-01-01 lies, and its place in it. */
static int32_t datetime_year(int32_t days, int32_t *ret_day)
{
    int32_t year = days / DAYS_IN_400_YEARS * 400;
    days %= DAYS_IN_400_YEARS;
    /* The last century of four and the last year of four are a day longer. */
    int32_t centuries = days / DAYS_IN_100_YEARS;
    centuries = centuries > 3 ? 3 : centuries;
    days -= centuries * DAYS_IN_100_YEARS;
    year += centuries * 100 + days / DAYS_IN_4_YEARS * 4;
    days %= DAYS_IN_4_YEARS;
    int32_t years = days / DAYS_IN_YEAR;
    years = years > 3 ? 3 : years;
    *ret_day = days - years * DAYS_IN_YEAR;
    return year + years + 1;
}

bool mst__datetime_write(int64_t us, uint8_t ret_raw[MST_DATETIME_SIZE])
{
    if (us < MST_DATETIME_MIN_US || us > MST_DATETIME_MAX_US) {
        return false;
    }
    uint64_t since_year_1 = (uint64_t)(us - MST_DATETIME_MIN_US);
    uint32_t fraction = (uint32_t)(since_year_1 % (uint64_t)SECOND_US);
    uint64_t seconds = since_year_1 / (uint64_t)SECOND_US;
    uint32_t second = (uint32_t)(seconds % (uint64_t)DAY_S);
    int32_t day;
    int32_t year = datetime_year((int32_t)(seconds / (uint64_t)DAY_S), &day);
    int32_t month = day / 31 + 1; /* this one or the next */
    if (day >= datetime_days_before_month(year, month + 1)) {
        month++;
    }
    ret_raw[0] = (uint8_t)(year >> 8);
    ret_raw[1] = (uint8_t)year;
    ret_raw[2] = (uint8_t)month;
    ret_raw[3] = (uint8_t)(day - datetime_days_before_month(year, month) + 1);
    ret_raw[4] = (uint8_t)(second / 3600);
    ret_raw[5] = (uint8_t)(second / 60 % 60);
    ret_raw[6] = (uint8_t)(second % 60);
    ret_raw[7] = (uint8_t)(fraction >> 16);
    ret_raw[8] = (uint8_t)(fraction >> 8);
    ret_raw[9] = (uint8_t)fraction;
    return true;
}
