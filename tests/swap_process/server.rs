//! A small server, which this test binary runs as.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, exit};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::time::Duration;
use std::{env, thread};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tower_triage::swap::{ModelServer, SwapModel};

use super::soon;

/// A model that the server serves.
pub(crate) fn server() -> SwapModel {
    let this = env::current_exe().unwrap();
    let cmd = format!(
        "'{}' --ignored --exact server::serve --nocapture",
        this.display()
    );
    let mut model = SwapModel::new("m", cmd);
    model.env.insert("SERVE_PORT".into(), "${PORT}".into());
    model
}

/// The answer of an instance to a `GET`: its status and its body.
pub(crate) async fn get(instance: &dyn ModelServer, path: &str) -> (u16, String) {
    let exchange = async {
        let url = instance.url();
        let address = url.authority().unwrap().as_str();
        let mut stream = tokio::net::TcpStream::connect(address).await?;
        let request = format!("GET {path} HTTP/1.1\r\nhost: m\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        std::io::Result::Ok(answer)
    };
    let answer = soon(exchange).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, body.to_owned())
}

/// How often its health was asked.
pub(crate) async fn asks(instance: &dyn ModelServer) -> u32 {
    get(instance, "/asks").await.1.parse().unwrap()
}

/// How many of the next questions about its health it says no to.
static FAILS: AtomicU32 = AtomicU32::new(0);
/// Whether it answers no question about its health.
static HANGS: AtomicBool = AtomicBool::new(false);
/// Whether it listens no more.
static IS_DEAF: AtomicBool = AtomicBool::new(false);
/// Whether it closes the connection of each request without an answer.
static RESETS: AtomicBool = AtomicBool::new(false);
static ASKS: AtomicU32 = AtomicU32::new(0);

/// The server's program. As a test it does nothing.
#[test]
#[ignore = "other tests run it as a program"]
fn serve() {
    let Some(port) = variable("SERVE_PORT") else {
        return;
    };
    thread::sleep(Duration::from_millis(
        variable("SERVE_DELAY_MS").unwrap_or(0),
    ));
    FAILS.store(variable("SERVE_FAILS").unwrap_or(0) as u32, SeqCst);
    HANGS.store(variable("SERVE_HANGS").is_some(), SeqCst);
    let listener = TcpListener::bind(("127.0.0.1", port as u16)).unwrap();
    while !IS_DEAF.load(SeqCst) {
        let (stream, _) = listener.accept().unwrap();
        let keeps = variable("SERVE_KEEPS").is_some();
        thread::spawn(move || while serve_one(&stream, keeps) {});
    }
    drop(listener);
    loop {
        thread::park();
    }
}

fn variable(name: &str) -> Option<u64> {
    env::var(name).ok()?.parse().ok()
}

/// Reads a request, and answers it. Returns `true` if the connection `keeps` open for the next one.
fn serve_one(mut stream: &TcpStream, keeps: bool) -> bool {
    let mut reader = BufReader::new(stream);
    let mut lines = reader.by_ref().lines().map_while(Result::ok);
    let Some(first) = lines.next() else {
        return false;
    };
    let mut length = 0;
    for line in lines.take_while(|line| !line.is_empty()) {
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    _ = std::io::copy(&mut reader.take(length), &mut std::io::sink());
    let path = first.split(' ').nth(1).unwrap();
    if path == "/cut" {
        cut(stream);
    }
    let (status, body) = answer(path);
    if RESETS.load(SeqCst) && path != "/health" {
        return false;
    }
    let length = body.len();
    let connection = if keeps { "keep-alive" } else { "close" };
    let head = format!("HTTP/1.1 {status} x\r\nconnection: {connection}");
    let written = write!(stream, "{head}\r\ncontent-length: {length}\r\n\r\n{body}");
    keeps && written.is_ok()
}

/// Exits in the middle of an answer, when every request that it serves has the beginning of its own.
fn cut(mut stream: &TcpStream) -> ! {
    let head = "HTTP/1.1 200 x\r\ncontent-length: 100\r\n\r\nhalf";
    _ = stream.write_all(head.as_bytes());
    thread::sleep(Duration::from_millis(100));
    exit(7)
}

fn answer(path: &str) -> (u16, String) {
    let words: Vec<_> = path.split('/').skip(1).collect();
    let nothing = String::new();
    match words[..] {
        ["health"] => (health(), nothing),
        ["progress"] => {
            let progress = r#"{"stages":["text","image"],"current":"image","value":0.5}"#;
            let event = format!(r#"data: {{"data":{{"status":"loading","progress":{progress}}}}}"#);
            (200, format!("{event}\n\n"))
        }
        ["asks"] => (200, ASKS.load(SeqCst).to_string()),
        ["fail", times] => {
            FAILS.store(times.parse().unwrap(), SeqCst);
            (200, nothing)
        }
        ["hang"] => {
            HANGS.store(true, SeqCst);
            (200, nothing)
        }
        ["deaf"] => {
            IS_DEAF.store(true, SeqCst);
            let port = variable("SERVE_PORT").unwrap() as u16;
            _ = TcpStream::connect(("127.0.0.1", port)); // the last one
            (200, nothing)
        }
        ["resets", value] => {
            RESETS.store(value == "on", SeqCst);
            (200, nothing)
        }
        ["env", name] => (200, env::var(name).unwrap_or_default()),
        ["child"] => {
            let mut child = Command::new("sleep").arg("3600").spawn().unwrap();
            thread::spawn(move || child.wait());
            (200, nothing)
        }
        ["flood", bytes] => (200, "x".repeat(bytes.parse().unwrap())),
        ["exit"] => exit(7),
        ["slow", millis] => {
            thread::sleep(Duration::from_millis(millis.parse().unwrap()));
            (200, nothing)
        }
        _ => (404, nothing),
    }
}

fn health() -> u16 {
    ASKS.fetch_add(1, SeqCst);
    while HANGS.load(SeqCst) {
        thread::park();
    }
    let fails = FAILS.fetch_update(SeqCst, SeqCst, |fails| fails.checked_sub(1));
    if fails.is_ok() { 503 } else { 200 }
}
