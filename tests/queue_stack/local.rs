//! Stacks that are bound to their thread.

use std::cell::RefCell;
use std::convert::Infallible;
use std::rc::Rc;

use tokio::task::{LocalSet, spawn_local};

use super::*;

/// The requests that the service has answered, in order.
type Log = Rc<RefCell<Vec<String>>>;

/// A service, a request's body and a future that are not `Send`.
fn local(
    log: &Log,
) -> impl Service<Request<Rc<str>>, Response = Response<Full<Bytes>>, Error = Rc<str>> + Clone + use<>
{
    let log = Rc::clone(log);
    service_fn(move |request: Request<Rc<str>>| {
        let log = Rc::clone(&log);
        async move {
            tokio::time::sleep(secs(1.0)).await;
            log.borrow_mut().push(request.body().to_string());
            Ok::<_, Rc<str>>(Response::<Full<Bytes>>::default())
        }
    })
}

/// Sends three requests at a time through a queue of one slot.
async fn serve_three<Q, B>(queue: Q, log: &Log)
where
    Q: Service<Request<Rc<str>>, Response = Response<B>, Error = Rc<str>> + Clone + 'static,
    Q::Future: 'static,
    B: 'static,
{
    let send = |name: &str| spawn_local(queue.clone().oneshot(Request::new(name.into())));
    for sent in ["a", "b", "c"].map(send) {
        let response = sent.await.unwrap().unwrap();
        assert_eq!(response.status(), 200);
    }
    assert_eq!(log.take(), ["a", "b", "c"]);
}

#[tokio::test(start_paused = true)]
async fn requests_and_services_need_not_be_send() {
    let test = async {
        let log = Log::default();
        let config = || QueueConfig::new(1);
        serve_three(QueueLayer::new(config()).layer(local(&log)), &log).await;
        serve_three(QueueLayer::limit(1).layer(local(&log)), &log).await;
        let until_headers = QueueLayer::until_headers(config());
        serve_three(until_headers.layer(local(&log)), &log).await;
        let seen = Log::default();
        let classified = QueueLayer::new(config()).classify({
            let seen = Rc::clone(&seen);
            move |request: &Request<Rc<str>>, context: &ClassifyContext<'_>| {
                seen.borrow_mut().push(request.body().to_string());
                context.default_ticket()
            }
        });
        serve_three(classified.layer(local(&log)), &log).await;
        assert_eq!(seen.take(), ["b", "c"]);
    };
    LocalSet::new().run_until(test).await;
}

#[tokio::test]
async fn services_may_borrow() {
    let name = String::from("borrowed");
    let service =
        QueueLayer::new(QueueConfig::new(1)).layer(service_fn(|_: Request<&str>| async {
            Ok::<_, Infallible>(Response::new(Full::<Bytes>::from(name.clone())))
        }));
    let response = service.oneshot(Request::new(name.as_str())).await.unwrap();
    assert_eq!(text(response).await, "borrowed");
}
