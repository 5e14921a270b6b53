//! The rules for the addresses to which webhooks may go.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use http::{StatusCode, Uri};

use tower_triage::rejection::Rejection;

/// The set of addresses to which webhooks may go.
///
/// A caller chooses the address of its webhook. Limiting it to public addresses keeps the caller from reaching services
/// inside the server's own network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WebhookAddresses {
    allows_private: bool,
}

impl WebhookAddresses {
    /// Returns the set of public addresses, without loopback, private, link-local, shared and reserved ones.
    #[must_use]
    pub fn public() -> Self {
        Self {
            allows_private: false,
        }
    }

    /// Returns the set of all addresses, for servers that trust their callers.
    #[must_use]
    pub fn all() -> Self {
        Self {
            allows_private: true,
        }
    }

    /// Checks the address of a webhook, for [`DurableLayer::webhooks`](crate::DurableLayer::webhooks).
    ///
    /// A host name is resolved later, at each connection, and its addresses are checked then.
    ///
    /// # Errors
    ///
    /// Returns 400 `webhook_not_allowed` if the sender would refuse to send a webhook to this address.
    pub fn check(&self, uri: &Uri) -> Result<(), Rejection> {
        let problem = match uri.scheme_str() {
            Some("http") => None,
            Some("https") if cfg!(feature = "tls") => None,
            Some("https") => Some("this server can't send webhooks over https"),
            _ => Some("a webhook's address begins with http:// or https://"),
        };
        let has_user = uri
            .authority()
            .is_some_and(|authority| authority.as_str().contains('@'));
        let problem = problem.or(match uri.host() {
            None | Some("") => Some("a webhook's address needs a host"),
            Some(_) if has_user => {
                Some("a webhook's address may not have a user or a password in it")
            }
            Some(host) if !self.allows_private && !may_be_public(host) => {
                Some("webhooks go to public addresses only")
            }
            Some(_) => None,
        });
        match problem {
            None => Ok(()),
            Some(problem) => Err(Rejection::new(
                StatusCode::BAD_REQUEST,
                "webhook_not_allowed",
                problem,
            )),
        }
    }

    /// Returns `true` if a connection may go to this address.
    #[cfg(feature = "webhooks")]
    pub(super) fn allows(self, address: IpAddr) -> bool {
        self.allows_private || is_public(address)
    }
}

/// Returns `false` if the host is certainly private, as far as its name or number tells without a look-up.
fn may_be_public(host: &str) -> bool {
    let literal = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    if let Ok(address) = literal.unwrap_or(host).parse() {
        return is_public(address);
    }
    let name = host.trim_end_matches('.').to_ascii_lowercase();
    let last = name.rsplit('.').next().unwrap_or_default();
    // The system's look-up would read such a name as an IPv4 address in another notation, for example `127.1`,
    // `0x7f000001` or `2130706433`.
    let is_number = last.starts_with("0x") || last.bytes().all(|byte| byte.is_ascii_digit());
    let is_local = matches!(last, "localhost" | "local" | "internal" | "localdomain");
    !is_number && !is_local
}

fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let is_special = address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_documentation()
        || address.is_multicast()
        || a == 0 // this network
        || a == 100 && b & 0b1100_0000 == 64 // shared address space between a provider and its customers
        || a == 192 && b == 0 && c == 0 // protocol assignments
        || a == 198 && b & 0b1111_1110 == 18 // benchmarks
        || a >= 240; // reserved addresses and broadcast
    !is_special
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let parts = address.segments();
    // These IPv6 addresses contain an IPv4 address. They are the mapped ones and those of the translators NAT64 and
    // 6to4.
    let embedded = match parts {
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            Some((high, low))
        }
        [0x2002, high, low, ..] => Some((high, low)),
        _ => None,
    };
    if let Some((high, low)) = embedded {
        let [a, b] = high.to_be_bytes();
        let [c, d] = low.to_be_bytes();
        return is_public_v4(Ipv4Addr::new(a, b, c, d));
    }
    // Only 2000::/3 is assigned for public use. Within it, Teredo, benchmarks, ORCHID and documentation are special.
    let is_given_out = parts[0] & 0xe000 == 0x2000;
    let is_special =
        parts[0] == 0x2001 && (parts[1] < 0x200 || parts[1] == 0xdb8) || parts[0] == 0x3fff;
    is_given_out && !is_special
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(url: &str) -> Option<&'static str> {
        let checked = WebhookAddresses::public().check(&url.parse().unwrap());
        checked.err().map(|rejection| rejection.code())
    }

    #[test]
    fn webhooks_go_to_public_addresses_only() {
        for host in [
            "127.0.0.1",
            "127.255.0.1:80",
            "10.0.0.1",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "0.0.0.0",
            "100.64.0.1",
            "192.0.0.1",
            "198.18.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "203.0.113.1",
            "[::1]",
            "[::]",
            "[fe80::1]",
            "[fc00::1]",
            "[fd12::1]",
            "[ff02::1]",
            "[::ffff:127.0.0.1]",
            "[::ffff:10.0.0.1]",
            "[64:ff9b::7f00:1]",
            "[2002:7f00:1::]",
            "[2001:db8::1]",
            "[2001::1]",
            "[::127.0.0.1]",
            "localhost",
            "LOCALHOST.",
            "a.localhost",
            "metadata.google.internal",
            "printer.local",
            "127.1",
            "2130706433",
            "0x7f000001",
            "0x7f.1",
        ] {
            assert_eq!(
                code(&format!("http://{host}/hook")),
                Some("webhook_not_allowed"),
                "{host}"
            );
            let allowed =
                WebhookAddresses::all().check(&format!("http://{host}/").parse().unwrap());
            assert_eq!(allowed, Ok(()), "{host}");
        }
        for host in [
            "example.com",
            "example.com:8080",
            "8.8.8.8",
            "172.32.0.1",
            "100.128.0.1",
            "[2606:4700::1111]",
            "[64:ff9b::808:808]",
            "[2002:808:808::]",
            "xn--bcher-kva.example",
        ] {
            assert_eq!(code(&format!("http://{host}/hook")), None, "{host}");
        }
    }

    #[test]
    fn an_address_is_http_with_a_host_and_no_user() {
        for url in [
            "ftp://example.com/",
            "/hook",
            "http://user:pass@example.com/",
            "example.com:80",
        ] {
            assert_eq!(code(url), Some("webhook_not_allowed"), "{url}");
        }
    }
}
