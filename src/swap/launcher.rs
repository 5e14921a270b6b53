//! The contract of launchers, which start models as processes, as containers, or as jobs elsewhere.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::Uri;
use tokio_util::sync::CancellationToken;

use super::{LoadProgress, ModelOutput, SwapModel};

/// A boxed future, as the methods of [`Launcher`] and [`ModelServer`] return it.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A launcher, which starts the servers of models, such as processes or containers.
///
/// ```
/// use std::sync::Arc;
/// use http::Uri;
/// use tower_triage::SwapLayer;
/// use tower_triage::swap::{
///     BoxFuture, Launch, Launcher, ModelServer, StartError, SwapConfig, SwapModel,
/// };
///
/// /// A launcher of containers, which here only prints.
/// #[derive(Debug)]
/// struct Containers;
///
/// #[derive(Debug)]
/// struct Container(String);
///
/// impl Launcher for Containers {
///     fn start(&self, launch: Launch) -> BoxFuture<Result<Arc<dyn ModelServer>, StartError>> {
///         Box::pin(async move {
///             println!("docker run {}", launch.model.cmd);
///             Ok(Arc::new(Container(launch.name.to_string())) as Arc<dyn ModelServer>)
///         })
///     }
/// }
///
/// impl ModelServer for Container {
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
    /// Starts a model. Resolves when the server can serve requests, or when the start has failed and its memory is free.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives the start up, and has to stop the server that was begun. If that takes longer than
    /// [`settle`](SwapModel::settle), set [`Launch::cleanup`]: the memory counts as taken until then.
    fn start(&self, launch: Launch) -> BoxFuture<Result<Arc<dyn ModelServer>, StartError>>;

    /// Ends the servers that an earlier run of the program has left, so that their memory is free before the first request. A
    /// layer calls this when it is built. Starts do not wait for it by themselves. Default: does nothing.
    fn prepare(&self) -> BoxFuture<()> {
        Box::pin(std::future::ready(()))
    }
}

/// The parameters of a start, as a [`Launcher`] gets them.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Launch {
    /// The configuration of the model that is to be started.
    pub model: Arc<SwapModel>,
    /// The name of the instance: the model's name, with `#2` and so on for further instances.
    pub name: Arc<str>,
    /// The number and the name of the memory pool for the instance, if there are several.
    pub pool: Option<(u32, Arc<str>)>,
    /// The time limit of the start, after which it has to fail.
    pub timeout: Duration,
    /// Takes the progress of the load, for reports and status streams.
    pub progress: LoadProgress,
    /// Takes the lines of the server's output, which handles read.
    pub output: ModelOutput,
    /// Takes the future that resolves when nothing is left of a start that was given up.
    pub cleanup: Cleanup,
    /// Cancelled if an operator kills the model: what is left of a start that was given up has to end at once then. Any other
    /// start that is given up may end in its own way.
    pub killed: CancellationToken,
}

impl Launch {
    /// Returns a start of a model's only instance, with this time limit.
    #[must_use]
    pub fn new(model: Arc<SwapModel>, timeout: Duration) -> Self {
        Self {
            name: model.model.name.as_str().into(),
            model,
            pool: None,
            timeout,
            progress: LoadProgress::default(),
            output: ModelOutput::default(),
            cleanup: Cleanup::default(),
            killed: CancellationToken::new(),
        }
    }
}

/// A place for the future that resolves when nothing is left of a start that was given up. Clones share it.
#[derive(Clone, Default)]
pub struct Cleanup(Arc<Mutex<Option<BoxFuture<()>>>>);

impl Cleanup {
    /// Sets the future that resolves when nothing is left of the start and its memory is free. It is polled once the start was
    /// dropped, or has panicked.
    pub fn set(&self, ended: impl Future<Output = ()> + Send + 'static) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::pin(ended));
    }

    /// Resolves when nothing is left of a dropped start and its memory is free. Without a future that was [set](Self::set),
    /// resolves at once.
    ///
    /// # Cancel safety
    ///
    /// After this is dropped, another call resolves at once.
    pub async fn wait(&self) {
        let ended = (self.0.lock().unwrap_or_else(PoisonError::into_inner)).take();
        if let Some(ended) = ended {
            ended.await;
        }
    }
}

impl fmt::Debug for Cleanup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cleanup").finish_non_exhaustive()
    }
}

/// A server of a model, such as a process or a container, that can serve requests.
///
/// Dropping it ends it at once, with everything that it started.
pub trait ModelServer: fmt::Debug + Send + Sync + 'static {
    /// Returns the URL to which requests go, once the server can serve them.
    fn url(&self) -> Uri;

    /// Resolves with the reason when the server has ended, or has to count as ended because it has ceased to answer. Its memory is
    /// free once [`kill`](Self::kill) has resolved, too.
    fn ended(&self) -> BoxFuture<String>;

    /// Asks the server to stop, and ends it at once if that takes too long. Resolves when its memory is free.
    ///
    /// # Cancel safety
    ///
    /// The future is dropped if the operator kills the model. Then [`kill`](Self::kill) is called.
    fn stop(&self) -> BoxFuture<()>;

    /// Ends the server at once, with everything that it started. Resolves when its memory is free.
    fn kill(&self) -> BoxFuture<()>;

    /// Takes the model's configuration after a change through which the server runs on. Default: does nothing.
    fn on_reconfigure(&self, model: &Arc<SwapModel>) {
        _ = model;
    }

    /// Puts the server to sleep, so that its memory is free until it wakes. Returns `None` (default) if it can't sleep.
    fn sleep(&self) -> Option<BoxFuture<Result<(), String>>> {
        None
    }

    /// Wakes the server. Resolves when it can serve requests. If that fails, [`stop`](Self::stop) is called.
    ///
    /// # Cancel safety
    ///
    /// The future is dropped if the wake is given up. Then [`stop`](Self::stop) is called, or [`kill`](Self::kill) if the
    /// operator kills the model.
    fn wake(&self, progress: LoadProgress) -> BoxFuture<Result<(), StartError>> {
        _ = progress;
        Box::pin(std::future::ready(Ok(())))
    }

    /// Checks the server at once, because it left a request without an answer. Resolves to `true` if it serves requests. If the check
    /// finds that it has failed, [`ended`](Self::ended) has to resolve. Default: `false`, which stands for unknown.
    fn check(&self) -> BoxFuture<bool> {
        Box::pin(std::future::ready(false))
    }

    /// Takes a report of traffic: `busy` requests wait for the server. The last call counts.
    ///
    /// A call that keeps the server busy or idle reports traffic to or from it. A call that changes it reports only the
    /// change, because clients come and go.
    ///
    /// With a [`hang_timeout`](SwapModel::hang_timeout), requests that wait for their clients do not count: for more of the
    /// request, or until the response is read.
    fn on_activity(&self, busy: u32) {
        _ = busy;
    }
}

/// The error of a start that failed, with the output that explains it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
#[non_exhaustive]
pub struct StartError {
    /// The reason, for the log and the status of the model.
    pub reason: String,
    /// The last lines of the server's output, if there are any.
    pub output: Vec<String>,
}

impl StartError {
    /// Returns an error with this reason and without output.
    #[must_use]
    pub fn new(reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            output: Vec::new(),
        }
    }
}
