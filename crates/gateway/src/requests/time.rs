//! Times for a terminal. All are seconds since the beginning of 1970, in UTC.

/// Returns a time with its distance from now: `2026-11-23 20:25:22 UTC, 3m ago`.
pub(super) fn moment(at: u64, now: u64) -> String {
    let distance = match at <= now {
        true => format!("{} ago", duration(now - at)),
        false => format!("in {}", duration(at - now)),
    };
    format!("{}, {distance}", date(at))
}

/// Returns a duration in the largest unit of which it is two.
pub(super) fn duration(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / 60),
        7_200..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

fn date(at: u64) -> String {
    let (hour, minute, second) = (at / 3_600 % 24, at / 60 % 60, at % 60);
    // Years begin in March here, so that a leap day is the last of its year; 400 years always have 146,097 days.
    let days = at / 86_400 + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let months = (5 * day_of_year + 2) / 153; // since March
    let day = day_of_year - (153 * months + 2) / 5 + 1;
    let month = if months < 10 { months + 3 } else { months - 9 };
    let year = 400 * era + year_of_era + u64::from(month <= 2);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_dates_with_their_distance() {
        for (at, now, expected) in [
            (0, 1, "1970-01-01 00:00:00 UTC, 1s ago"),
            (951_782_400, 951_782_400, "2000-02-29 00:00:00 UTC, 0s ago"),
            (951_868_799, 951_782_400, "2000-02-29 23:59:59 UTC, in 23h"),
            (
                4_107_542_400,
                4_107_542_000,
                "2100-03-01 00:00:00 UTC, in 6m",
            ),
            (
                1_798_761_599,
                1_798_761_720,
                "2026-12-31 23:59:59 UTC, 2m ago",
            ),
        ] {
            assert_eq!(moment(at, now), expected);
        }
    }

    #[test]
    fn durations_have_at_least_two_of_their_unit() {
        for (seconds, expected) in [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (7_199, "119m"),
            (7_200, "2h"),
            (172_800, "2d"),
        ] {
            assert_eq!(duration(seconds), expected);
        }
    }
}
