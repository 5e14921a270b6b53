//! Free ports for processes.

use std::collections::HashSet;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The ports that are held. A process listens only some time after its port was chosen, and until then the system takes
/// the port for free.
static HELD: Mutex<Option<HashSet<u16>>> = Mutex::new(None);

/// A port of the loopback interface that was free when it was chosen. No other one has the same number while this lives.
#[derive(Debug)]
pub(super) struct Port(u16);

impl Port {
    pub(super) fn choose() -> io::Result<Self> {
        // Kept open until one is found, so that the system offers each port once.
        let mut offered = Vec::new();
        loop {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            let number = listener.local_addr()?.port();
            offered.push(listener);
            if hold(number) {
                return Ok(Self(number));
            }
        }
    }

    pub(super) fn number(&self) -> u16 {
        self.0
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        if let Some(held) = held().as_mut() {
            held.remove(&self.0);
        }
    }
}

/// Whether this port was not held yet. From now on it is.
fn hold(number: u16) -> bool {
    held().get_or_insert_default().insert(number)
}

fn held() -> MutexGuard<'static, Option<HashSet<u16>>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_differ() {
        let ports: Vec<_> = (0..200).map(|_| Port::choose().unwrap()).collect();
        let numbers: HashSet<_> = ports.iter().map(Port::number).collect();
        assert_eq!(numbers.len(), ports.len());
    }

    #[test]
    fn a_held_port_is_not_held_twice() {
        let port = Port::choose().unwrap();
        let number = port.number();
        assert!(!hold(number));
        drop(port);
        assert!(hold(number));
        drop(Port(number));
    }
}
