//! Slots that tenants share as time.

use std::convert::Infallible;

use tower_triage::Discipline;

use super::*;

/// The requests that reached the service, by their tenants.
type Order = Arc<Mutex<Vec<String>>>;

/// Holds its slot for the seconds that the request names.
fn holding(
    order: &Order,
) -> impl Service<
    Request<Full<Bytes>>,
    Response = Response<Full<Bytes>>,
    Error = Infallible,
    Future: Send,
> + Clone
+ Send
+ 'static {
    let order = Arc::clone(order);
    service_fn(move |request: Request<Full<Bytes>>| {
        let header = |name: &str| request.headers()[name].to_str().unwrap().to_owned();
        order.lock().unwrap().push(header("x-tenant-id"));
        let hold = secs(header("x-hold").parse().unwrap());
        async move {
            tokio::time::sleep(hold).await;
            Ok(Response::new(Full::default()))
        }
    })
}

#[tokio::test(start_paused = true)]
async fn a_slot_that_was_free_is_charged_once_others_wait() {
    let layer = QueueLayer::new(QueueConfig::new(1).discipline(Discipline::Fair));
    let handle = layer.handle();
    let per_key = QueueLayer::new(QueueConfig::new(1).discipline(Discipline::Fair));
    let (orders, order_of_key) = (Order::default(), Order::default());
    let queue = layer.layer(holding(&orders));
    let by_key = per_key
        .per_key(|request: &Request<Full<Bytes>>| request.uri().path())
        .layer(holding(&order_of_key));
    let queues = [
        (tower::util::BoxCloneService::new(queue), orders),
        (tower::util::BoxCloneService::new(by_key), order_of_key),
    ];
    for (queue, order) in queues {
        let ask = |tenant, hold| {
            let request = request(&[("x-tenant-id", tenant), ("x-hold", hold)]);
            tokio::spawn(queue.clone().oneshot(request))
        };
        // A second with the slot usually brings a request.
        ask("teacher", "1").await.unwrap().unwrap();
        let mut asked = vec![ask("a", "10")];
        settle().await;
        for tenant in ["a", "a", "b", "b", "b", "b"] {
            asked.push(ask(tenant, "1"));
            settle().await;
        }
        for asked in asked {
            asked.await.unwrap().unwrap();
        }
        let order = std::mem::take(&mut *order.lock().unwrap());
        assert_eq!(order[1..], ["a", "b", "b", "b", "b", "a", "a"]);
    }
    nothing_is_left(&handle);
}
