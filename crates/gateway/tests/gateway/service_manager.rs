//! Messages of the gateway to a service manager, which listens at a socket as systemd does.

use std::time::Duration;

use tokio::net::UnixDatagram;
use tokio::time::timeout;

use crate::backend::Backend;
use crate::process::{Setup, TIMEOUT};

/// The socket of a service manager.
struct Manager {
    socket: UnixDatagram,
    path: std::path::PathBuf,
}

impl Manager {
    fn new() -> Self {
        let name = format!("tower-triage-manager-{}.sock", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_file(&path);
        let socket = UnixDatagram::bind(&path).unwrap();
        Self { socket, path }
    }

    async fn next(&self) -> String {
        let mut message = [0; 200];
        let received = timeout(TIMEOUT, self.socket.recv(&mut message));
        let length = received.await.expect("no message comes").unwrap();
        String::from_utf8_lossy(&message[..length])
            .trim()
            .to_owned()
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

#[tokio::test]
async fn the_service_manager_learns_of_start_life_and_end() {
    let manager = Manager::new();
    let backend = Backend::start().await;
    let interval = Duration::from_millis(100);
    let mut gateway = Setup::new()
        .environment("NOTIFY_SOCKET", manager.path.to_str().unwrap())
        .environment("WATCHDOG_USEC", &interval.as_micros().to_string())
        .backend("a", &backend, 1, &["m"])
        .start()
        .await;
    assert_eq!(manager.next().await, "READY=1");
    for _ in 0..3 {
        assert_eq!(manager.next().await, "WATCHDOG=1");
    }
    gateway.signal("TERM");
    while manager.next().await != "STOPPING=1" {}
    assert!(gateway.exit().await.success());
}
