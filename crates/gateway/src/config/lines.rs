//! The lines in which sections begin, for problems that are found once the whole file was read.

use toml::Spanned;
use toml::de::DeTable;

/// Returns a section, and its line. The default if it is absent.
pub(super) fn section<T: Default>(section: Option<Spanned<T>>, text: &str) -> (T, Option<usize>) {
    let (section, line) = optional(section, text);
    (section.unwrap_or_default(), line)
}

/// Returns a section, and its line.
pub(super) fn optional<T>(section: Option<Spanned<T>>, text: &str) -> (Option<T>, Option<usize>) {
    section.map_or((None, None), |section| {
        let line = line(&section, text);
        (Some(section.into_inner()), Some(line))
    })
}

/// Returns each section of an array, and its line.
pub(super) fn each<T>(sections: Vec<Spanned<T>>, text: &str) -> Vec<(T, usize)> {
    // The sections are in the order of the file, so each counts on from the one before.
    let (mut line, mut counted) = (1, 0);
    let sections = sections.into_iter().map(|section| {
        let start = section.span().start;
        let between = text.get(counted..start).unwrap_or_default();
        (line, counted) = (line + between.matches('\n').count(), start);
        (section.into_inner(), line)
    });
    sections.collect()
}

/// Returns the line of the value to which these keys lead, or of the last table on the way that is there.
pub(super) fn of_key(text: &str, path: &[&str]) -> Option<usize> {
    let file = DeTable::parse(text).ok()?;
    let mut table = Some(file.get_ref());
    let mut found = None;
    for key in path {
        let Some(value) = table.and_then(|table| table.get(*key)) else {
            break;
        };
        found = Some(line(value, text));
        table = value.get_ref().as_table();
    }
    found
}

fn line<T>(section: &Spanned<T>, text: &str) -> usize {
    let before = text.get(..section.span().start).unwrap_or_default();
    before.matches('\n').count() + 1
}
