//! The listeners of an address: one for each worker.
//!
//! On Linux each worker has a socket of its own, and the kernel spreads the connections over them (`SO_REUSEPORT`). On
//! other systems all workers accept from one socket.

use std::io;
use std::net::{SocketAddr, TcpListener};

use tokio::net::TcpSocket;

/// The number of connections that may wait to be accepted.
const BACKLOG: u32 = 1024;

/// The number of bytes that a socket takes before the network does. Linux otherwise takes no more once its buffer of 4 MB is
/// full until a third of it is free, and a client that reads slowly would look like one that does not read for so long.
#[cfg(any(target_os = "linux", target_os = "android"))]
const UNSENT_LIMIT: u32 = 128 << 10;

/// Listens on `addr`, or on a free port of it. Returns `workers` listeners, and the address with its port.
pub(crate) fn listen(
    addr: SocketAddr,
    workers: usize,
) -> Result<(Vec<TcpListener>, SocketAddr), String> {
    let listeners = match workers {
        0 | 1 => bind(addr, false).and_then(|socket| Ok(vec![start(socket)?])),
        _ => of_workers(addr, workers),
    };
    let with_addr = listeners.and_then(|listeners| {
        let addr = listeners
            .first()
            .map_or(Ok(addr), TcpListener::local_addr)?;
        Ok((listeners, addr))
    });
    with_addr.map_err(|error| format!("cannot listen on {addr}: {error}"))
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn of_workers(addr: SocketAddr, workers: usize) -> io::Result<Vec<TcpListener>> {
    if addr.port() != 0 {
        // Fails if another program listens there. With the option, two gateways would share the clients between them.
        drop(bind(addr, false)?);
    }
    let first = bind(addr, true)?;
    let addr = first.local_addr()?; // has the port that was free
    let mut listeners = vec![start(first)?];
    for _ in 1..workers {
        listeners.push(start(bind(addr, true)?)?);
    }
    Ok(listeners)
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn of_workers(addr: SocketAddr, workers: usize) -> io::Result<Vec<TcpListener>> {
    let mut listeners = vec![start(bind(addr, false)?)?];
    for _ in 1..workers {
        let next = listeners[0].try_clone()?;
        listeners.push(next);
    }
    Ok(listeners)
}

fn bind(addr: SocketAddr, #[allow(unused)] is_shared: bool) -> io::Result<TcpSocket> {
    let socket = match addr {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // On Windows the option would let another program take the port.
    #[cfg(unix)]
    socket.set_reuseaddr(true)?;
    #[cfg(any(target_os = "linux", target_os = "android"))]
    socket.set_reuseport(is_shared)?;
    socket.bind(addr)?;
    Ok(socket)
}

/// Starts to listen. The socket is not bound to a runtime yet.
fn start(socket: TcpSocket) -> io::Result<TcpListener> {
    // Accepted sockets inherit it.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    socket2::SockRef::from(&socket).set_tcp_notsent_lowat(UNSENT_LIMIT)?;
    socket.listen(BACKLOG)?.into_std()
}
