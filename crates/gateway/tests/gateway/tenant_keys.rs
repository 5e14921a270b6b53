//! Tests of files of keys, and of tenants that a reload changes.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::time::{Duration, Instant, sleep};

use crate::backend::Backend;
#[cfg(target_os = "linux")]
use crate::hanging_file::Hangs;
use crate::process::{Gateway, Setup, TIMEOUT};

/// A file of keys, deleted on drop.
struct KeysFile(PathBuf);

impl KeysFile {
    fn new(text: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("tower-triage-{}-{count}.keys", std::process::id());
        let file = Self(std::env::temp_dir().join(name));
        file.write(text);
        file
    }

    fn write(&self, text: &str) {
        std::fs::write(&self.0, text).unwrap();
    }

    fn section(&self) -> String {
        format!("[[tenants]]\nname = \"a\"\nkeys_file = {:?}\n", self.0)
    }
}

impl Drop for KeysFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn setup(backend: &Backend, sections: &str) -> Setup {
    Setup::new()
        .backend("gpu-1", backend, 4, &["m"])
        .sections(sections)
}

async fn status(gateway: &Gateway, key: &str) -> u16 {
    let ask = gateway.ask("m").header("x-api-key", key);
    ask.answer().await.status
}

async fn until_status(gateway: &Gateway, key: &str, expected: u16) {
    let end = Instant::now() + TIMEOUT;
    while status(gateway, key).await != expected {
        assert!(Instant::now() < end, "{key} never gets {expected}");
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_changed_file_of_keys_is_read_again() {
    let backend = Backend::replying("fine").await;
    let file = KeysFile::new("# team a\n\n  sk-1 # alice\r\nsk-2\n");
    let gateway = setup(&backend, &file.section()).start().await;
    for (key, expected) in [("sk-1", 200), ("sk-2", 200), ("#", 401), ("alice", 401)] {
        assert_eq!(status(&gateway, key).await, expected, "{key}");
    }
    file.write("sk-2\nsk-3\n");
    until_status(&gateway, "sk-3", 200).await;
    assert_eq!(status(&gateway, "sk-1").await, 401);
    assert_eq!(status(&gateway, "sk-2").await, 200);
    gateway.logs(&["INFO", "tenants changed: a"]).await;
}

#[tokio::test]
async fn a_broken_file_of_keys_keeps_the_old_ones() {
    let backend = Backend::replying("fine").await;
    let file = KeysFile::new("sk-1\n");
    let gateway = setup(&backend, &file.section()).start().await;
    file.write("sk-5\nsk 6");
    gateway.logs(&["ERROR", "line 2", "keys stay"]).await;
    assert_eq!(status(&gateway, "sk-1").await, 200);
    assert_eq!(status(&gateway, "sk-5").await, 401);
    std::fs::remove_file(&file.0).unwrap();
    gateway.logs(&["ERROR", "No such file", "keys stay"]).await;
    assert_eq!(status(&gateway, "sk-1").await, 200);
    gateway.signal("HUP");
    gateway
        .logs(&["ERROR", "No such file", "nothing has changed"])
        .await;
    assert_eq!(status(&gateway, "sk-1").await, 200);
    file.write("sk-7");
    until_status(&gateway, "sk-7", 200).await;
    assert_eq!(status(&gateway, "sk-1").await, 401);
    file.write("# all were taken away");
    until_status(&gateway, "sk-7", 401).await;
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_file_of_keys_that_hangs_stops_neither_reloads_nor_other_files() {
    let backend = Backend::replying("fine").await;
    let (file, other) = (KeysFile::new("sk-1\n"), KeysFile::new("sk-b1\n"));
    let other_section = other.section().replace("\"a\"", "\"b\"");
    let tenants = file.section() + &other_section;
    let gateway = setup(&backend, &tenants).start().await;
    let hangs = Hangs::new(&file.0);
    gateway
        .logs(&["ERROR", "has not responded", "keys stay"])
        .await;
    other.write("sk-b2\n");
    until_status(&gateway, "sk-b2", 200).await;
    gateway.reload(&setup(&backend, &tenants).backend("gpu-2", &backend, 1, &["n"]));
    gateway.logs(&["INFO", "endpoints added: gpu-2"]).await;
    for (key, expected) in [("sk-1", 200), ("sk-b2", 200), ("sk-b1", 401)] {
        assert_eq!(status(&gateway, key).await, expected, "{key}");
    }
    // A tenant that has no keys yet gets none from the file.
    let renamed = file.section().replace("\"a\"", "\"c\"");
    gateway.reload(&setup(&backend, &renamed));
    gateway
        .logs(&["ERROR", "has not responded", "nothing has changed"])
        .await;
    assert_eq!(gateway.logged("keys stay"), 1);

    drop(hangs);
    file.write("sk-2\n");
    gateway.reload(&setup(&backend, &tenants));
    until_status(&gateway, "sk-2", 200).await;
    assert_eq!(status(&gateway, "sk-1").await, 401);
}

#[tokio::test]
async fn tenants_change_with_a_reload_but_do_not_vanish() {
    let backend = Backend::replying("fine").await;
    let tenant = |name: &str, rest: &str| format!("[[tenants]]\nname = \"{name}\"\n{rest}\n");
    let gateway = setup(&backend, "").start().await;
    assert_eq!(status(&gateway, "sk-a").await, 200);

    let both = tenant("a", "keys = [\"sk-a\"]") + &tenant("b", "keys = [\"sk-b\"]");
    gateway.reload(&setup(&backend, &both));
    gateway.logs(&["INFO", "tenants added: a, b"]).await;
    assert_eq!(status(&gateway, "sk-b").await, 200);
    assert_eq!(status(&gateway, "sk-c").await, 401);

    let changed = tenant("a", "keys = [\"sk-c\"]\nmodels = [\"x\"]");
    gateway.reload(&setup(&backend, &changed));
    gateway.logs(&["INFO", "tenants removed: b"]).await;
    gateway.logs(&["INFO", "tenants changed: a"]).await;
    for (key, expected) in [("sk-a", 401), ("sk-b", 401), ("sk-c", 404)] {
        assert_eq!(status(&gateway, key).await, expected, "{key}");
    }

    gateway.reload(&setup(&backend, ""));
    gateway
        .logs(&["ERROR", "no [[tenants]]", "nothing has changed"])
        .await;
    assert_eq!(status(&gateway, "sk-a").await, 401);
}
