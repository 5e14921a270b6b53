//! Free ports for the processes that listen on loopback.

use std::collections::HashSet;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

/// The ports that are held. A process listens only some time after its port was chosen, and until then the port is free
/// for the system.
static HELD: LazyLock<Mutex<HashSet<u16>>> = LazyLock::new(Mutex::default);

/// A port of the loopback interface that was free when it was chosen. The number is not chosen again until this is dropped.
#[derive(Debug)]
pub(super) struct Port(u16);

/// The ports to choose from. Systems give higher ones to outgoing connections, and to servers that leave the choice to the
/// system: 32768 and above on Linux, 49152 and above elsewhere. Such a port could be taken before the process listens.
const NUMBERS: Range<u16> = 10_000..32_768;
/// The number of ports that are tried. They are random, so that several programs choose different ones.
const TRIES: usize = 1_000;

impl Port {
    pub(super) fn choose() -> io::Result<Self> {
        Self::first_free((0..TRIES).map(|_| fastrand::u16(NUMBERS)))
    }

    /// Returns the first port that is not held, and on which no program listens.
    fn first_free(numbers: impl Iterator<Item = u16>) -> io::Result<Self> {
        let mut last_error = io::Error::from(ErrorKind::AddrInUse);
        for number in numbers {
            if !held().insert(number) {
                continue;
            }
            let port = Self(number); // dropped, and so given back, if a program listens on it
            match TcpListener::bind((Ipv4Addr::LOCALHOST, number)) {
                Ok(_) => return Ok(port),
                Err(error) => last_error = error,
            }
        }
        Err(last_error)
    }

    pub(super) fn number(&self) -> u16 {
        self.0
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        held().remove(&self.0);
    }
}

fn held() -> MutexGuard<'static, HashSet<u16>> {
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
    fn a_port_is_neither_held_nor_listened_on() {
        let [held, busy, free] = [(); 3].map(|()| Port::choose().unwrap());
        let numbers = [&held, &busy, &free].map(Port::number);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, busy.number())).unwrap();
        drop((busy, free));
        let port = Port::first_free(numbers.into_iter()).unwrap();
        assert_eq!(port.number(), numbers[2]);
        let error = Port::first_free(numbers.into_iter()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
        drop(listener);
        let port = Port::first_free(numbers.into_iter()).unwrap();
        assert_eq!(port.number(), numbers[1]);
    }
}
