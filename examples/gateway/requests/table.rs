//! Stored requests as tables for a terminal.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;

/// The columns of a list: title, and key in the JSON.
const COLUMNS: [(&str, &str); 8] = [
    ("ID", "id"),
    ("STATUS", "status"),
    ("QUEUE", "queue"),
    ("LEVEL", "level"),
    ("TENANT", "tenant"),
    ("ATTEMPTS", "attempts"),
    ("AGE", "created_at"),
    ("REASON", "reason"),
];

/// Returns the table of a list, and how to see the rest of it.
pub(super) fn list(list: &Value) -> String {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    list_at(list, now)
}

/// `now`: since the beginning of 1970.
fn list_at(list: &Value, now: Duration) -> String {
    let requests = list["data"].as_array().map_or(&[][..], Vec::as_slice);
    if requests.is_empty() {
        return "no requests\n".to_owned();
    }
    let row = |request: &Value| {
        COLUMNS.map(|(_, key)| match key {
            "created_at" => age(&request[key], now),
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

/// Returns all that is known of a request, a line each.
pub(super) fn request(request: &Value) -> String {
    let fields = request.as_object().into_iter().flatten();
    let rows = fields.flat_map(|(key, value)| match value {
        Value::Object(inner) => {
            let rows = inner
                .iter()
                .map(|(name, value)| [format!("{key}.{name}"), cell(value)]);
            rows.collect()
        }
        value => vec![[key.clone(), cell(value)]],
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

/// Returns the time since `at`, in the largest unit of which it is two.
fn age(at: &Value, now: Duration) -> String {
    let Some(at) = at.as_f64() else {
        return "-".to_owned();
    };
    let seconds = (now.as_secs_f64() - at).max(0.0) as u64;
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / 60),
        7_200..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
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
        let now = Duration::from_secs(1_000_000);
        let entry = |id: &str, tenant: &str, reason: Value, ago: u64| {
            json!({ "id": id, "status": "failed", "queue": "m", "level": "normal", "tenant": tenant, "attempts": 1,
                    "created_at": 1_000_000 - ago, "reason": reason })
        };
        let data = [
            entry("a", "team", json!("worker_lost"), 119),
            entry("b", "", Value::Null, 200_000),
        ];
        let page = json!({ "data": data, "has_more": true, "last_id": "b" });
        assert_eq!(
            list_at(&page, now),
            "ID  STATUS  QUEUE  LEVEL   TENANT  ATTEMPTS  AGE   REASON\n\
             a   failed  m      normal  team    1         119s  worker_lost\n\
             b   failed  m      normal  -       1         2d    -\n\
             older ones follow: --after b\n"
        );
        assert_eq!(list_at(&json!({ "data": [] }), now), "no requests\n");
    }

    #[test]
    fn one_request_is_a_line_for_each_field() {
        let known = json!({ "id": "a", "urls": { "get": "/requests/a" }, "reason": null });
        let lines: Vec<_> = request(&known).lines().map(str::to_owned).collect();
        assert!(lines.contains(&"id        a".to_owned()), "{lines:?}");
        assert!(
            lines.contains(&"urls.get  /requests/a".to_owned()),
            "{lines:?}"
        );
        assert!(lines.contains(&"reason    -".to_owned()), "{lines:?}");
    }

    #[test]
    fn terminal_obeys_no_name_of_a_client() {
        assert_eq!(printable("a\u{1b}[2Jb\nc"), "a\\u{1b}[2Jb\\nc");
        assert_eq!(printable("tenant-é"), "tenant-é");
    }
}
