use std::time::Duration;
use tower::{BoxError, Service, ServiceBuilder, ServiceExt, service_fn};
use tower_triage::{QueueConfig, QueueError, QueueLayer};

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let queue = QueueLayer::plain(
        QueueConfig::new(2)
            .max_size(1)
            .max_wait(Duration::from_millis(250)),
    )?;
    let handle = queue.handle();
    let svc = ServiceBuilder::new()
        .layer(queue)
        .buffer::<u32>(8)
        .timeout(Duration::from_millis(400))
        .service(service_fn(|n: u32| async move {
            tokio::time::sleep(Duration::from_millis(n as u64)).await;
            Ok::<_, std::io::Error>(n)
        }));
    let mut set = tokio::task::JoinSet::new();
    for n in [100, 500, 300, 300] {
        let mut s = svc.clone();
        set.spawn(async move { (n, s.ready().await.unwrap().call(n).await) });
    }
    while let Some(r) = set.join_next().await {
        let (n, r) = r?;
        match r {
            Ok(v) => println!("{n} ok {v}"),
            Err(QueueError::Rejected(why)) => println!("{n} rejected {why}"),
            Err(QueueError::Inner(e)) => println!("{n} inner {e}"),
        }
    }
    println!("{:#?}", handle.status());
    for cfg in [
        QueueConfig::new(0),
        QueueConfig::inner().no_waiting(),
        QueueConfig::new(1).priorities(["gold", "silver"], "bronze"),
        QueueConfig::new(1).priority_header("x prio"),
        QueueConfig::new(1).promote_after(Duration::ZERO),
        QueueConfig::new(1).tenant_weight("a", 0),
    ] {
        println!("{}", QueueLayer::try_new(cfg).unwrap_err());
    }
    println!(
        "{}",
        QueueLayer::plain(QueueConfig::new(2))?
            .share_inner()
            .unwrap_err()
    );
    println!("{}", handle.reconfigure(QueueConfig::inner()).unwrap_err());
    Ok(())
}
