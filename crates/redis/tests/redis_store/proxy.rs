//! A way to Redis that breaks when it is told to.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// A TCP proxy on a port of its own, until it is dropped.
pub(crate) struct Proxy {
    port: u16,
    shared: Arc<Shared>,
    listening: AbortHandle,
}

struct Shared {
    /// The port of the server to which new connections go.
    to: AtomicU16,
    /// Grows when all connections are to be cut.
    cuts: watch::Sender<u64>,
    /// `true` while replies are swallowed.
    is_deaf: AtomicBool,
}

impl Proxy {
    pub(crate) async fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let shared = Arc::new(Shared {
            to: AtomicU16::new(port),
            cuts: watch::Sender::new(0),
            is_deaf: AtomicBool::new(false),
        });
        let own_port = listener.local_addr().unwrap().port();
        let task = tokio::spawn(listen(listener, Arc::clone(&shared)));
        Self {
            port: own_port,
            shared,
            listening: task.abort_handle(),
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Swallows all replies from now on, until the next cut: commands arrive, and their callers never learn of it.
    pub(crate) fn swallow_replies(&self) {
        self.shared.is_deaf.store(true, Ordering::SeqCst);
    }

    /// Leads new connections to another server, as a name does that was changed.
    pub(crate) fn lead_to(&self, port: u16) {
        self.shared.to.store(port, Ordering::SeqCst);
    }

    /// Cuts all connections.
    pub(crate) fn cut(&self) {
        self.shared.cuts.send_modify(|cuts| *cuts += 1);
        self.shared.is_deaf.store(false, Ordering::SeqCst);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.cut();
        self.listening.abort();
    }
}

async fn listen(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        let (client, _) = listener.accept().await.unwrap();
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            let mut cuts = shared.cuts.subscribe();
            let port = shared.to.load(Ordering::SeqCst);
            let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await else {
                return;
            };
            tokio::select! {
                _ = cuts.changed() => {}
                () = forward(client, server, &shared) => {}
            }
        });
    }
}

async fn forward(mut client: TcpStream, mut server: TcpStream, shared: &Shared) {
    let (mut from_client, mut to_client) = client.split();
    let (mut from_server, mut to_server) = server.split();
    let requests = async {
        let _ = tokio::io::copy(&mut from_client, &mut to_server).await;
    };
    let replies = async {
        let mut buffer = vec![0; 16 * 1_024];
        // A later reply would be taken for the one that was swallowed, so a connection stays silent until it is cut.
        let mut is_silent = false;
        while let Ok(read @ 1..) = from_server.read(&mut buffer).await {
            is_silent |= shared.is_deaf.load(Ordering::SeqCst);
            if is_silent {
                continue;
            }
            if to_client.write_all(&buffer[..read]).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = requests => {}
        () = replies => {}
    }
}
