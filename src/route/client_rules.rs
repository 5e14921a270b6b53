//! The rules of a router about its clients: the ticket of a request, and the models that it may ask for.

use std::fmt;
use std::sync::Arc;

use super::RoutingConfig;
use crate::admit::Ticket;
use crate::endpoints::RouteError;
use crate::queue::{ClassifyContext, RequestHead};

type ClassifyFn = dyn Fn(&RequestHead<'_>, &ClassifyContext<'_>) -> Ticket + Send + Sync;
type AllowFn = dyn Fn(&RequestHead<'_>, &str) -> bool + Send + Sync;

/// The closures that the builder was given. Without one, tickets are read from headers and every model is allowed.
#[derive(Clone, Default)]
pub(super) struct ClientRules {
    pub(super) classify: Option<Arc<ClassifyFn>>,
    pub(super) allow_models: Option<Arc<AllowFn>>,
}

impl ClientRules {
    /// Returns the ticket of a request.
    #[inline]
    pub(super) fn ticket(
        &self,
        request: &RequestHead<'_>,
        context: &ClassifyContext<'_>,
    ) -> Ticket {
        match &self.classify {
            Some(classify) => classify(request, context),
            None => context.ticket_from_headers(request.headers()),
        }
    }

    /// Checks that a request may ask for `model`, by this name or by the name of which it is an alias.
    pub(super) fn check_model(
        &self,
        request: &RequestHead<'_>,
        model: &str,
        routing: impl FnOnce() -> Arc<RoutingConfig>,
    ) -> Result<(), RouteError> {
        let Some(allows) = &self.allow_models else {
            return Ok(());
        };
        if allows(request, model) {
            return Ok(());
        }
        let routing = routing();
        let target = routing.aliases.get(model);
        match target.is_some_and(|target| allows(request, &target.model)) {
            true => Ok(()),
            false if model.is_empty() => Err(RouteError::model_missing()),
            // The alias is not named, so that the client cannot tell this from an unknown model.
            false => Err(RouteError::ModelNotFound {
                model: model.into(),
                alias_of: None,
            }),
        }
    }
}

impl fmt::Debug for ClientRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientRules").finish_non_exhaustive()
    }
}
