//! The fields of a line of the log in text form. No value begins a line of its own, whoever wrote it.

use std::fmt::{self, Debug, Write};

use tracing::field::{Field, Visit};
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::Writer;

/// Writes fields as the default format does, with all control characters in values escaped. Only a backtrace has lines.
#[derive(Debug, Clone, Copy)]
pub(super) struct OneLine;

impl<'writer> FormatFields<'writer> for OneLine {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'writer>, fields: R) -> fmt::Result {
        let mut visitor = Visitor {
            writer,
            is_first: true,
            written: Ok(()),
        };
        fields.record(&mut visitor);
        visitor.written
    }
}

struct Visitor<'writer> {
    writer: Writer<'writer>,
    is_first: bool,
    written: fmt::Result,
}

impl Visitor<'_> {
    fn write(&mut self, name: &str, value: &dyn Debug) -> fmt::Result {
        if !std::mem::take(&mut self.is_first) {
            self.writer.write_char(' ')?;
        }
        match name {
            "message" => {}
            name if self.writer.has_ansi_escapes() => {
                write!(self.writer, "\x1b[3m{name}\x1b[0m\x1b[2m=\x1b[0m")?;
            }
            name => write!(self.writer, "{name}=")?,
        }
        match name {
            "backtrace" => write!(self.writer, "{value:?}"),
            _ => write!(Escaped(&mut self.writer), "{value:?}"),
        }
    }
}

impl Visit for Visitor<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => self.record_debug(field, &format_args!("{value}")),
            _ => self.record_debug(field, &value),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // Fields of the crate `log` that are in the metadata, too.
        let name = field.name();
        if self.written.is_ok() && !name.starts_with("log.") {
            self.written = self.write(name.trim_start_matches("r#"), value);
        }
    }
}

/// A writer that escapes control characters.
struct Escaped<W>(W);

impl<W: Write> Write for Escaped<W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some((at, char)) = rest.char_indices().find(|(_, char)| is_escaped(*char)) {
            self.0.write_str(&rest[..at])?;
            write!(self.0, "{}", char.escape_default())?;
            rest = &rest[at + char.len_utf8()..];
        }
        self.0.write_str(rest)
    }
}

/// Returns `true` for control characters, and for the two that begin a line for readers that know more than ASCII.
fn is_escaped(char: char) -> bool {
    char.is_control() || matches!(char, '\u{2028}' | '\u{2029}')
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(line);
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(log: impl FnOnce()) -> String {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .without_time()
            .with_target(false)
            .fmt_fields(OneLine)
            .with_writer(move || writer.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, log);
        String::from_utf8(lines.0.lock().unwrap().clone()).unwrap()
    }

    #[test]
    fn no_value_begins_a_line_of_its_own() {
        let forged = "m\n2026-01-01 INFO forged\r\u{1b}[2K\u{2028}é";
        let line = logged(|| {
            tracing::info!(reason = %forged, quoted = forged, debug = ?forged, "said {forged}");
        });
        assert_eq!(line.matches('\n').count(), 1, "{line}");
        assert!(!line.contains(['\r', '\u{1b}', '\u{2028}']), "{line:?}");
        assert!(line.contains(r"reason=m\n2026-01-01 INFO forged\r\u{1b}[2K\u{2028}é"));
    }

    #[test]
    fn plain_fields_are_written_as_by_default() {
        let line = logged(|| {
            let none: Option<u64> = None;
            tracing::info!(name = "a b", plain = %"a", number = 7, some = Some(1.5), none, "request");
        });
        let expected = " INFO request name=\"a b\" plain=a number=7 some=1.5\n";
        assert_eq!(line, expected);
    }

    #[test]
    fn spans_have_their_fields_on_the_line() {
        let line = logged(|| {
            let span = tracing::info_span!("triage.try", model = %"a\nb");
            span.in_scope(|| tracing::info!("done"));
        });
        assert_eq!(line, " INFO triage.try{model=a\\nb}: done\n");
    }

    #[test]
    fn a_backtrace_keeps_its_lines() {
        let line = logged(|| tracing::error!(backtrace = %"one\ntwo", "a\nb"));
        assert_eq!(line, "ERROR a\\nb backtrace=one\ntwo\n");
    }
}
