//! Times in the format of HTTP headers, such as `Sun, 06 Nov 1994 08:49:37 GMT`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Parses an HTTP date in the only format that senders may use today (`IMF-fixdate` of RFC 9110). Returns `None` for
/// any other text and for times before 1970.
pub(super) fn parse_http_date(text: &str) -> Option<SystemTime> {
    let (weekday, rest) = text.trim().split_once(", ")?;
    if !WEEKDAYS.contains(&weekday) {
        return None;
    }
    let parts: Vec<&str> = rest.split(' ').collect();
    let [day, month, year, time, "GMT"] = parts[..] else {
        return None;
    };
    let times: Vec<&str> = time.split(':').collect();
    let [hour, minute, second] = times[..] else {
        return None;
    };
    let month = 1 + MONTHS.iter().position(|name| *name == month)?;
    let (day, year) = (digits(day, 2)?, digits(year, 4)?);
    let (hour, minute, second) = (digits(hour, 2)?, digits(minute, 2)?, digits(second, 2)?);
    // A leap second has the number 60. The length of the month and the weekday stay unchecked, so 31 February is read
    // as an early day of March.
    if !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let days = days_since_1970(year, u64::try_from(month).ok()?, day)?;
    let seconds = ((days * 24 + hour) * 60 + minute) * 60 + second;
    UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

const WEEKDAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

fn digits(text: &str, length: usize) -> Option<u64> {
    let is_digits = text.len() == length && text.bytes().all(|byte| byte.is_ascii_digit());
    is_digits.then(|| text.parse().ok())?
}

/// Returns the number of days from 1 January 1970 to a day of the Gregorian calendar, or `None` for an earlier day.
fn days_since_1970(year: u64, month: u64, day: u64) -> Option<u64> {
    // The year begins in March here, so that the leap day is the last day of its year.
    let (year, month) = match month {
        1 | 2 => (year.checked_sub(1)?, month + 9),
        _ => (year, month - 3),
    };
    // The factor 153 / 5 spreads the pattern of 31, 30, 31, 30 and 31 days over each five months from March on.
    let in_year = (153 * month + 2) / 5 + day - 1;
    let since_0 = 365 * year + year / 4 - year / 100 + year / 400 + in_year;
    since_0.checked_sub(719_468) // the days from 1 March of year 0 to 1 January 1970
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn dates_of_the_standard_form_are_read() {
        let cases = [
            ("Thu, 01 Jan 1970 00:00:00 GMT", Some(0)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(784_111_777)),
            ("Tue, 29 Feb 2000 23:59:59 GMT", Some(951_868_799)),
            ("Mon, 01 Mar 2027 00:00:00 GMT", Some(1_803_859_200)),
            ("Sun, 06 Nov 1994 08:49:37 CET", None),
            ("Sunday, 06-Nov-94 08:49:37 GMT", None),
            ("Sun, 6 Nov 1994 08:49:37 GMT", None),
            ("Sun, 06 Nov 1994 24:49:37 GMT", None),
            ("Sun, 00 Nov 1994 08:49:37 GMT", None),
            ("Wed, 31 Dec 1969 23:59:59 GMT", None),
            ("Sat, 01 Jan 0000 00:00:00 GMT", None),
            ("", None),
        ];
        for (text, seconds) in cases {
            let expected = seconds.map(|seconds| UNIX_EPOCH + Duration::from_secs(seconds));
            assert_eq!(parse_http_date(text), expected, "{text}");
        }
    }
}
