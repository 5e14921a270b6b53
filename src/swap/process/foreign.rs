//! The check that no other server answers at the fixed URL of a model before its process starts. It would pass the health checks,
//! and get the model's requests, while the process fails to listen.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use http::{Method, Uri};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::health::HealthClient;
use crate::swap::SwapModel;
use crate::upstream::Prober;

/// The time for which a start waits until the other server is gone. It may be the model's last one, in a container that is still
/// being removed.
const GONE_WITHIN: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(100);
/// The time limit of one look.
const LOOK: Duration = Duration::from_secs(1);

/// Returns the reason not to start a model, if another server answers in its place. Several instances of a model share a server
/// in front of them, which may be there before.
pub(super) async fn refusal(model: &SwapModel, prober: &Prober) -> Option<String> {
    let url = model.proxy.as_ref().filter(|_| model.instances == 1)?;
    let gone = async {
        while answers(model, url, prober).await {
            sleep(PAUSE).await;
        }
    };
    let is_there = timeout(GONE_WITHIN, gone).await.is_err();
    is_there.then(|| {
        format!("another server answers at its `proxy`, {url}, before it is started: end that one")
    })
}

/// Returns `true` if a server passes the model's health check. Without a check, a server of this machine counts if it
/// listens.
async fn answers(model: &SwapModel, url: &Uri, prober: &Prober) -> bool {
    let Some(path) = &model.health_path else {
        let connected = async { TcpStream::connect(loopback(url)?).await.ok() };
        return matches!(timeout(LOOK, connected).await, Ok(Some(_)));
    };
    let client = HealthClient::new(prober.clone(), 0, Some(url.clone()));
    client.ask(Method::GET, path, LOOK).await.is_ok()
}

/// Returns the address of a URL if it is one of the loopback interface.
fn loopback(url: &Uri) -> Option<(IpAddr, u16)> {
    let host = url.host()?.trim_matches(['[', ']']);
    let address = match host {
        "localhost" => Ipv4Addr::LOCALHOST.into(),
        host => host.parse::<IpAddr>().ok()?,
    };
    (address.is_loopback()).then_some((address, url.port_u16().unwrap_or(80)))
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn addresses_of_this_machine_are_known() {
        for (url, port) in [
            ("http://127.0.0.1:5801", Some(5801)),
            ("http://localhost/base", Some(80)),
            ("http://[::1]:81", Some(81)),
            ("http://10.0.0.7:80", None),
            ("http://container:80", None),
        ] {
            let address = loopback(&Uri::from_static(url));
            assert_eq!(address.map(|(_, port)| port), port, "{url}");
        }
    }

    #[tokio::test]
    async fn a_start_waits_until_the_port_is_free() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut model = SwapModel::new("m", "serve");
        let url = format!("http://{}", listener.local_addr().unwrap());
        (model.proxy, model.health_path) = (url.parse().ok(), None);
        let prober = Prober::local();
        let refusal = refusal(&model, &prober);
        let gone = async {
            listener.accept().await.unwrap();
            drop(listener);
        };
        let (refusal, ()) = tokio::join!(refusal, gone);
        assert_eq!(refusal, None);
    }
}
