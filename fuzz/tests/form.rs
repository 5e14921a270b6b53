//! Forms, of which the router reads the model and a server everything.

use bytes::Bytes;
use futures_util::{FutureExt, stream};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue};
use http_body::Frame;
use http_body_util::StreamBody;
use multer::Multipart;
use tower_triage::endpoints::RouteError;
use tower_triage::fuzz::{Form, form};

#[test]
fn a_server_reads_the_model_that_the_router_read() {
    bolero::check!()
        .with_iterations(super::RANDOM_INPUTS)
        .for_each(|input| {
            let (kind, body) = super::first_line(input);
            if let Ok(kind) = HeaderValue::from_bytes(kind) {
                router_agrees_with_a_server(&kind, body);
            }
        });
}

/// The words of which a header is made, one for each byte of an input.
const WORDS: [&str; 16] = [
    "name",
    "filename",
    "NAME",
    "model",
    "x",
    "form-data",
    "=",
    "=",
    ";",
    ";",
    "\"",
    "\"",
    " ",
    " ",
    "*",
    "\\",
];

#[test]
fn a_server_reads_the_field_that_the_router_read() {
    bolero::check!()
        .with_iterations(10 * super::RANDOM_INPUTS)
        .for_each(|input| {
            let words = input
                .iter()
                .take(24)
                .map(|byte| WORDS[usize::from(byte % 16)]);
            let header: String = words.collect();
            let part = |header: &str, content| {
                format!("--b\r\nContent-Disposition: {header}\r\n\r\n{content}\r\n")
            };
            let first = part("form-data; name=model", "a");
            let second = part(&header, "b");
            let kind = HeaderValue::from_static("multipart/form-data; boundary=b");
            for form in [format!("{first}{second}--b--"), format!("{second}--b--")] {
                router_agrees_with_a_server(&kind, form.as_bytes());
            }
        });
}

fn router_agrees_with_a_server(kind: &HeaderValue, body: &[u8]) {
    let Some(whole) = read(kind, body, usize::MAX) else {
        return;
    };
    for length in [usize::MAX, 1, 7] {
        let form = read(kind, body, length).expect("the headers are the same");
        if whole.is_ok() {
            assert_eq!(form, whole, "in pieces of {length}");
        }
        // What is refused as a whole is cut off if its pieces are on their way.
        if let Ok(form) = form {
            agrees_with_a_server(kind, body, &form);
        }
    }
}

fn agrees_with_a_server(kind: &HeaderValue, body: &[u8], form: &Form) {
    assert!(body.starts_with(&form.passed));
    let names = models_of_a_server(kind, &form.passed).unwrap_or_default();
    for name in names.iter().map(|name| name.trim_ascii()) {
        assert!(
            name.is_empty() || Some(name) == form.model.as_deref(),
            "{name:?}"
        );
    }
}

fn read(kind: &HeaderValue, body: &[u8], length: usize) -> Option<Result<Form, RouteError>> {
    let pieces = body.chunks(length);
    let frames: Vec<_> = pieces
        .map(|piece| Ok::<_, std::io::Error>(Frame::data(Bytes::copy_from_slice(piece))))
        .collect();
    let headers = HeaderMap::from_iter([(CONTENT_TYPE, kind.clone())]);
    let read = form(&headers, StreamBody::new(stream::iter(frames)));
    read.now_or_never().expect("such a body never waits")
}

/// Returns the contents of all parts `model` that a server finds. Returns `None` if it refuses the form.
fn models_of_a_server(kind: &HeaderValue, form: &[u8]) -> Option<Vec<Vec<u8>>> {
    let boundary = multer::parse_boundary(kind.to_str().ok()?).ok()?;
    let pieces = stream::iter([Ok::<_, std::io::Error>(Bytes::copy_from_slice(form))]);
    let mut form = Multipart::new(pieces, boundary);
    let read = async {
        let mut models = Vec::new();
        while let Some(field) = form.next_field().await.ok()? {
            let is_model = field.name() == Some("model") && field.file_name().is_none();
            let content = field.bytes().await.ok()?;
            if is_model {
                models.push(content.to_vec());
            }
        }
        Some(models)
    };
    read.now_or_never().flatten()
}
