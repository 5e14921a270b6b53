//! Recorded traces: a CSV with the columns `TIMESTAMP`, `ContextTokens` and `GeneratedTokens`, plain or gzipped.

use std::error::Error;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use flate2::read::GzDecoder;

/// A request of a trace.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Row {
    /// Seconds since the first one.
    pub(crate) at: f64,
    pub(crate) input_tokens: u32,
    pub(crate) output_tokens: u32,
}

/// Reads a trace, and sorts it by time.
pub(crate) fn read(path: &Path) -> Result<Vec<Row>, Box<dyn Error>> {
    let file = File::open(path).map_err(|why| format!("{}: {why}", path.display()))?;
    let is_gzipped = path.extension().is_some_and(|extension| extension == "gz");
    let rows = match is_gzipped {
        true => parse(GzDecoder::new(file)),
        false => parse(file),
    };
    rows.map_err(|why| format!("{}: {why}", path.display()).into())
}

/// Parses a trace, and sorts it by time.
pub(crate) fn parse(csv: impl Read) -> Result<Vec<Row>, Box<dyn Error>> {
    let mut rows = Vec::new();
    let mut lines = BufReader::new(csv).lines().zip(1..);
    let (header, _) = lines.next().ok_or("empty")?;
    let columns = Columns::find(&header?)?;
    for (line, number) in lines {
        let line = line?;
        if line.trim().is_empty() {
            continue;
        }
        let row = columns.parse(&line);
        rows.push(row.ok_or_else(|| format!("line {number} is not a request: {line:?}"))?);
    }
    rows.sort_by(|a, b| a.at.total_cmp(&b.at));
    let first = rows.first().ok_or("no request")?.at;
    rows.iter_mut().for_each(|row| row.at -= first);
    Ok(rows)
}

/// Where the columns are.
struct Columns([usize; 3]);

impl Columns {
    fn find(header: &str) -> Result<Self, String> {
        let names: Vec<&str> = header.split(',').map(str::trim).collect();
        let find = |name: &str| {
            let at = names.iter().position(|column| *column == name);
            at.ok_or_else(|| format!("no column {name}, but {names:?}"))
        };
        Ok(Self([
            find("TIMESTAMP")?,
            find("ContextTokens")?,
            find("GeneratedTokens")?,
        ]))
    }

    fn parse(&self, line: &str) -> Option<Row> {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let field = |column: usize| fields.get(self.0[column]).copied();
        Some(Row {
            at: seconds(field(0)?)?,
            input_tokens: field(1)?.parse().ok()?,
            output_tokens: field(2)?.parse().ok()?,
        })
    }
}

/// Seconds since some epoch, of a time as `2023-11-16 18:15:46.6805900`, or as a number of seconds.
fn seconds(timestamp: &str) -> Option<f64> {
    if let Ok(seconds) = timestamp.parse() {
        return Some(seconds);
    }
    let (date, time) = timestamp.split_once([' ', 'T'])?;
    let mut date = date.splitn(3, '-').map(|part| part.parse::<i64>().ok());
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let mut time = time.trim_end_matches('Z').splitn(3, ':');
    let hours: f64 = time.next()?.parse().ok()?;
    let minutes: f64 = time.next()?.parse().ok()?;
    let seconds: f64 = time.next()?.parse().ok()?;
    Some(days(year, month, day) as f64 * 86_400.0 + hours * 3_600.0 + minutes * 60.0 + seconds)
}

/// Days since some epoch. A year counts from March, so that a leap day is its last.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = match month > 2 {
        true => (year, month - 3),
        false => (year - 1, month + 9),
    };
    // 153 days are five months from March or August on.
    365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day
}
