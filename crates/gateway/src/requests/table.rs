//! Stored requests as tables for a terminal.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;

use super::time;

/// The columns of a list: title, and key in the JSON.
const COLUMNS: [(&str, &str); 10] = [
    ("ID", "id"),
    ("STATUS", "status"),
    ("HTTP", "response_status"),
    ("QUEUE", "queue"),
    ("PRIORITY", "priority"),
    ("TENANT", "tenant"),
    ("ATTEMPTS", "attempts"),
    ("AGE", "created_at"),
    ("RAN", "started_at"),
    ("REASON", "reason"),
];

/// The keys of a request in the JSON, in the order in which they are shown; others follow.
const KEYS: [&str; 15] = [
    "id",
    "status",
    "reason",
    "response_status",
    "queue",
    "priority",
    "tenant",
    "position",
    "estimate_seconds",
    "attempts",
    "created_at",
    "not_before",
    "started_at",
    "ended_at",
    "deadline",
];

/// Returns the table of a list, and how to see the rest of it.
pub(super) fn list(list: &Value) -> String {
    list_at(list, now())
}

fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

/// `now`: seconds since the beginning of 1970.
fn list_at(list: &Value, now: u64) -> String {
    let requests = list["data"].as_array().map_or(&[][..], Vec::as_slice);
    if requests.is_empty() {
        return "no requests\n".to_owned();
    }
    let row = |request: &Value| {
        COLUMNS.map(|(_, key)| match key {
            "created_at" => since(request[key].as_u64(), Some(now)),
            "started_at" => {
                let is_over = request["status"].as_str() == Some("queued");
                let end = request["ended_at"].as_u64();
                since(request[key].as_u64(), end.or((!is_over).then_some(now)))
            }
            "priority" => priority(request),
            _ => cell(&request[key]),
        })
    };
    let titles = COLUMNS.map(|(title, _)| title.to_owned());
    let rows: Vec<_> = std::iter::once(titles)
        .chain(requests.iter().map(row))
        .collect();
    let mut text = aligned(&rows);
    if let (Some(true), Some(last)) = (list["has_more"].as_bool(), list["last_id"].as_str()) {
        text += &format!("older ones follow: --after {}\n", printable(last));
    }
    text
}

/// Returns the time from one to the other.
fn since(begin: Option<u64>, end: Option<u64>) -> String {
    match (begin, end) {
        (Some(begin), Some(end)) => time::duration(end.saturating_sub(begin)),
        _ => "-".to_owned(),
    }
}

/// Returns the name of a request's level, or its index if the gateway gives no name.
fn priority(request: &Value) -> String {
    match request["priority"].as_str() {
        Some(name) => printable(name),
        None => cell(&request["level"]),
    }
}

/// Returns all that is known of a request, a line each.
pub(super) fn request(request: &Value) -> String {
    request_at(request, now())
}

fn request_at(request: &Value, now: u64) -> String {
    let mut fields: Vec<_> = request.as_object().into_iter().flatten().collect();
    fields.retain(|(key, _)| !["object", "level"].contains(&key.as_str()));
    let place = |key: &str| KEYS.iter().position(|known| *known == key);
    fields.sort_by_key(|(key, _)| place(key).unwrap_or(KEYS.len()));
    let rows = fields.into_iter().flat_map(|(key, value)| match value {
        Value::Object(inner) => {
            let rows = inner
                .iter()
                .map(|(name, value)| [format!("{key}.{name}"), cell(value)]);
            rows.collect()
        }
        value => {
            let is_time = [
                "created_at",
                "not_before",
                "started_at",
                "ended_at",
                "deadline",
            ];
            let shown = match (key.as_str(), value.as_u64()) {
                (key, Some(at)) if is_time.contains(&key) => time::moment(at, now),
                ("estimate_seconds", Some(seconds)) => time::duration(seconds),
                _ => cell(value),
            };
            vec![[key.clone(), shown]]
        }
    });
    let rows = rows.map(|row| row.map(|cell| printable(&cell)));
    aligned(&rows.collect::<Vec<_>>())
}

/// Returns the id and the state of a request.
pub(super) fn state(request: &Value) -> String {
    format!("{} {}\n", cell(&request["id"]), cell(&request["status"]))
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) if text.is_empty() => "-".to_owned(),
        Value::String(text) => printable(text),
        other => printable(&other.to_string()),
    }
}

/// Escapes what a terminal would obey: names are those of clients.
pub(super) fn printable(text: &str) -> String {
    let mut printed = String::with_capacity(text.len());
    for c in text.chars() {
        match c.is_control() {
            true => printed.extend(c.escape_default()),
            false => printed.push(c),
        }
    }
    printed
}

fn aligned<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| {
        let widths = rows.iter().map(|row| row[column].chars().count());
        widths.max().unwrap_or(0)
    };
    let widths: [usize; N] = std::array::from_fn(width);
    let lines = rows.iter().map(|row| {
        let cells = row.iter().zip(widths);
        let cells = cells.map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lists_are_aligned_and_say_what_follows() {
        let entry = |id: &str, status: &str, more: Value| {
            let mut entry =
                json!({ "id": id, "status": status, "queue": "m", "level": 1, "attempts": 1 });
            let fields = entry.as_object_mut().unwrap();
            fields.extend(more.as_object().unwrap().clone());
            entry
        };
        let data = [
            entry(
                "a",
                "failed",
                json!({ "priority": "batch", "tenant": "team", "created_at": 999_881, "started_at": 999_900,
                        "ended_at": 999_990, "response_status": 502, "reason": "error_response" }),
            ),
            entry(
                "b",
                "processing",
                json!({ "tenant": "", "created_at": 800_000, "started_at": 999_880 }),
            ),
            entry(
                "c",
                "queued",
                json!({ "created_at": 999_999, "started_at": 999_880 }),
            ),
        ];
        let page = json!({ "data": data, "has_more": true, "last_id": "c" });
        assert_eq!(
            list_at(&page, 1_000_000),
            "ID  STATUS      HTTP  QUEUE  PRIORITY  TENANT  ATTEMPTS  AGE   RAN  REASON\n\
             a   failed      502   m      batch     team    1         119s  90s  error_response\n\
             b   processing  -     m      1         -       1         2d    2m   -\n\
             c   queued      -     m      1         -       1         1s    -    -\n\
             older ones follow: --after c\n"
        );
        assert_eq!(list_at(&json!({ "data": [] }), 0), "no requests\n");
    }

    #[test]
    fn one_request_is_a_line_for_each_field() {
        let known = json!({
            "id": "a", "object": "request", "level": 2, "priority": "batch", "urls": { "get": "/requests/a" },
            "reason": null, "created_at": 7, "estimate_seconds": 200, "attempts": 0, "new": true,
        });
        assert_eq!(
            request_at(&known, 10),
            "id                a\n\
             reason            -\n\
             priority          batch\n\
             estimate_seconds  3m\n\
             attempts          0\n\
             created_at        1970-01-01 00:00:07 UTC, 3s ago\n\
             new               true\n\
             urls.get          /requests/a\n"
        );
    }

    #[test]
    fn terminal_obeys_no_name_of_a_client() {
        assert_eq!(printable("a\u{1b}[2Jb\nc"), "a\\u{1b}[2Jb\\nc");
        assert_eq!(printable("tenant-é"), "tenant-é");
    }
}
