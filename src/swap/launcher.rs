//! What starts and stops models: processes here, or containers, or jobs elsewhere.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use http::Uri;

use super::{Cleanup, Progress, SwapModel};

/// A future on the heap.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Starts models.
///
/// ```
/// use std::sync::Arc;
/// use http::Uri;
/// use tower_triage::SwapLayer;
/// use tower_triage::swap::{
///     BoxFuture, Instance, Launch, Launcher, StartError, SwapConfig, SwapModel,
/// };
///
/// /// Starts containers; here they only print.
/// #[derive(Debug)]
/// struct Containers;
///
/// #[derive(Debug)]
/// struct Container(String);
///
/// impl Launcher for Containers {
///     fn start(&self, launch: Launch) -> BoxFuture<Result<Arc<dyn Instance>, StartError>> {
///         Box::pin(async move {
///             println!("docker run {}", launch.model.cmd);
///             Ok(Arc::new(Container(launch.name.to_string())) as Arc<dyn Instance>)
///         })
///     }
/// }
///
/// impl Instance for Container {
///     fn url(&self) -> Uri {
///         Uri::from_static("http://127.0.0.1:9001")
///     }
///     fn ended(&self) -> BoxFuture<String> {
///         Box::pin(std::future::pending())
///     }
///     fn stop(&self) -> BoxFuture<()> {
///         let name = self.0.clone();
///         Box::pin(async move { println!("docker stop {name}") })
///     }
///     fn kill(&self) -> BoxFuture<()> {
///         self.stop()
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let models = SwapConfig::memory(24.0).model(SwapModel::new("qwen:7b", "qwen").memory(8.0));
/// let layer = SwapLayer::builder(models).launcher(Containers).try_build()?;
/// assert_eq!(layer.handle().models()[0].state.as_str(), "unloaded");
/// # Ok(())
/// # }
/// ```
pub trait Launcher: fmt::Debug + Send + Sync + 'static {
    /// Starts an instance of a model. Resolves when it can serve requests, or has failed and its memory is free.
    ///
    /// # Cancel safety
    ///
    /// A start that is dropped is given up: what was started of it is stopped. If that takes longer than
    /// [`settle`](SwapModel::settle), set [`Launch::cleanup`]: its memory counts as taken until then.
    fn start(&self, launch: Launch) -> BoxFuture<Result<Arc<dyn Instance>, StartError>>;

    /// Ends what an earlier run of the program has left, so that its memory is free before a model is asked for. A layer
    /// calls it when it is built, and waits for it in no start: a start that has to wait does so by itself. Default: nothing.
    fn prepare(&self) -> BoxFuture<()> {
        Box::pin(std::future::ready(()))
    }
}

/// What is to be started.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Launch {
    /// The model.
    pub model: Arc<SwapModel>,
    /// The name of the instance: that of the model, with `#2` and so on for further ones.
    pub name: Arc<str>,
    /// The number and the name of the memory pool that it is placed in, where there are several.
    pub pool: Option<(u32, Arc<str>)>,
    /// How long the start may take.
    pub timeout: std::time::Duration,
    /// Takes how far the load has come.
    pub progress: Progress,
    /// Takes the future that resolves when nothing is left of the start, should it be given up.
    pub cleanup: Cleanup,
}

impl Launch {
    /// A start of a model's only instance, which may take so long.
    #[must_use]
    pub fn new(model: Arc<SwapModel>, timeout: std::time::Duration) -> Self {
        Self {
            name: model.model.name.as_str().into(),
            model,
            pool: None,
            timeout,
            progress: Progress::default(),
            cleanup: Cleanup::default(),
        }
    }
}

/// A model that can serve requests.
///
/// Dropping it ends it at once, with all that it started.
pub trait Instance: fmt::Debug + Send + Sync + 'static {
    /// Where requests to it go.
    fn url(&self) -> Uri;

    /// Resolves with the reason when it has ended, or is to be taken for ended because it answers no more. Its memory is
    /// free when [`kill`](Self::kill) has resolved, too.
    fn ended(&self) -> BoxFuture<String>;

    /// Stops it: asks it to, and ends it at once if it takes too long. Resolves when its memory is free.
    ///
    /// # Cancel safety
    ///
    /// It is dropped if the operator wants the model ended at once. Then [`kill`](Self::kill) is called.
    fn stop(&self) -> BoxFuture<()>;

    /// Ends it at once, with all that it started. Resolves when its memory is free.
    fn kill(&self) -> BoxFuture<()>;

    /// Puts it to sleep: it frees its memory, and serves no request until it is woken. `None` (default) if it can't.
    fn sleep(&self) -> Option<BoxFuture<Result<(), String>>> {
        None
    }

    /// Wakes it. Resolves when it can serve requests. If that fails, [`kill`](Self::kill) is called.
    ///
    /// # Cancel safety
    ///
    /// It is dropped if the wake is given up. Then [`stop`](Self::stop) is called, or [`kill`](Self::kill) if the operator
    /// wants the model ended at once.
    fn wake(&self, progress: Progress) -> BoxFuture<Result<(), StartError>> {
        _ = progress;
        Box::pin(std::future::ready(Ok(())))
    }

    /// Checks at once whether it serves requests, because a request to it got no answer. Resolves to `true` if it does. One
    /// that is found to have failed has to [end](Self::ended). Default: `false`, it is not known.
    fn check(&self) -> BoxFuture<bool> {
        Box::pin(std::future::ready(false))
    }

    /// Told when something came from it or went to it lately, and when it becomes busy or idle: `busy` requests wait for it.
    /// The last call counts, so calls must not overtake each other. One that leaves it busy, or idle, says that something came
    /// or went; one that changes that says nothing else, as clients come and go.
    ///
    /// With a [`hang_timeout`](SwapModel::hang_timeout), a request that waits for its client is not counted: for more of the
    /// request, or until the response is read.
    fn on_activity(&self, busy: u32) {
        _ = busy;
    }
}

/// Why a model could not be started.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
#[non_exhaustive]
pub struct StartError {
    /// What went wrong.
    pub reason: String,
    /// The last lines of its output.
    pub output: Vec<String>,
}

impl StartError {
    /// An error without output.
    #[must_use]
    pub fn new(reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            output: Vec::new(),
        }
    }

    /// The last lines of its output.
    #[must_use]
    pub fn output(mut self, lines: Vec<String>) -> Self {
        self.output = lines;
        self
    }
}
