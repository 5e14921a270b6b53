//! Durations in the short notation that callers write into headers.

use std::time::Duration;

/// Parses a duration, where `90` and `90s` are seconds, `1.5m` minutes, `2h` hours and `7d` days. Returns `None` for
/// any other text, such as a combination of two units.
///
/// ```
/// use std::time::Duration;
/// use tower_triage_durable::parse_duration;
///
/// assert_eq!(parse_duration("1.5m"), Some(Duration::from_secs(90)));
/// assert_eq!(parse_duration("soon"), None);
/// ```
#[must_use]
pub fn parse_duration(text: &str) -> Option<Duration> {
    let text = text.trim();
    let (number, unit) = match text.char_indices().last()? {
        (at, 's') => (&text[..at], 1.0),
        (at, 'm') => (&text[..at], 60.0),
        (at, 'h') => (&text[..at], 3_600.0),
        (at, 'd') => (&text[..at], 86_400.0),
        _ => (text, 1.0),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_digits(whole) || !is_digits(fraction) {
        return None; // rules out signs, exponents and `inf`, which `f64` would parse
    }
    Duration::try_from_secs_f64(number.parse::<f64>().ok()? * unit).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_and_fractions_are_read_and_nothing_else() {
        let cases = [
            ("90", Some(90_000)),
            ("90s", Some(90_000)),
            ("1.5m", Some(90_000)),
            ("2h", Some(7_200_000)),
            ("7d", Some(604_800_000)),
            (" 0.25 ", Some(250)),
            ("0", Some(0)),
            ("", None),
            ("s", None),
            (".5", None),
            ("1.", None),
            ("-1", None),
            ("+1", None),
            ("1e3", None),
            ("inf", None),
            ("1 m", None),
            ("1ms", None),
            ("1M", None),
            ("1é", None),
            ("1h30m", None),
            ("99999999999999999999999d", None),
        ];
        for (text, millis) in cases {
            let expected = millis.map(Duration::from_millis);
            assert_eq!(parse_duration(text), expected, "{text:?}");
        }
    }
}
