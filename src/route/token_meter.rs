//! The charging of a request's tenant for the tokens of its answer, with the discipline `fair`.

use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use http_body::Frame;

use super::RouteObserver;
use super::shared::RouterShared;
use crate::admit::{Capacity, Discipline};
use crate::endpoints::Endpoints;
use crate::endpoints::config::FairBy;
use crate::gate::{Charger, Permit};
use crate::openai::{AnswerForm, UsageReader};

/// A meter that counts the tokens of an answer, and charges for them or tells an observer when it is dropped. That is before
/// the permit gives its slot back, so the charge already affects the choice of the next request.
#[derive(Debug)]
pub(super) struct TokenMeter {
    /// `None` if the tokens are only counted for the observer.
    charger: Option<Charger<Endpoints>>,
    reader: UsageReader,
    /// The observer of the request, which is told the counts.
    observer: Option<Arc<dyn RouteObserver>>,
    /// The estimate of prompt tokens that the ticket was charged for.
    estimated_prompt: u32,
    /// The largest number of tokens that the prompt may have.
    most_prompt: u64,
    /// The largest number of tokens that the answer may have.
    most_output: u64,
    is_whole: bool,
}

/// The cost of an answer's token in tokens of a prompt.
const OUTPUT_WEIGHT: u64 = 2;

impl TokenMeter {
    /// Counts the tokens in a frame of the answer.
    pub(super) fn read(&mut self, frame: &Frame<Bytes>) {
        if let Some(data) = frame.data_ref() {
            self.reader.read(data);
            if let Some(observer) = &self.observer {
                observer.on_tokens(None, self.reader.events());
            }
        }
    }

    /// Marks the answer as read to its end, and charges for it.
    pub(super) fn end(mut self) {
        self.is_whole = true;
    }
}

impl Drop for TokenMeter {
    fn drop(&mut self) {
        let (prompt, output) =
            self.reader
                .tokens(self.is_whole, self.most_prompt, self.most_output);
        let more = prompt
            .unwrap_or(0)
            .saturating_sub(self.estimated_prompt.into());
        if let Some(observer) = &self.observer {
            observer.on_tokens(prompt, output);
        }
        if let Some(charger) = &self.charger {
            let cost = more.saturating_add(output.saturating_mul(OUTPUT_WEIGHT));
            charger.charge(u32::try_from(cost).unwrap_or(u32::MAX));
        }
    }
}

impl RouterShared {
    /// Returns `true` if requests cost their tokens.
    pub(super) fn charges_tokens(&self) -> bool {
        // The cheap check is first, because it is nearly always `false`.
        self.state.gate.is_fair() && self.endpoints().routing().fair_by == FairBy::Tokens
    }

    /// Returns a meter for the tokens of this answer, if its tenant is charged for them or the observer wants them.
    #[inline]
    pub(super) fn token_meter<R>(
        &self,
        permit: &Permit<Endpoints>,
        response: &Response<R>,
        observer: Option<&Arc<dyn RouteObserver>>,
    ) -> Option<Box<TokenMeter>> {
        let is_wanted = observer.is_some_and(|observer| observer.wants_tokens());
        // Nearly all routers use another discipline, and stop here without such an observer.
        if !is_wanted && !self.state.gate.is_fair() || !response.status().is_success() {
            return None;
        }
        let charger = self.charger(permit);
        let form = AnswerForm::of(response.headers());
        // An estimate from the length of a text is only good enough for charges.
        if charger.is_none() && !(is_wanted && form.may_have_usage()) {
            return None;
        }
        Some(self.meter(permit, charger, form, observer))
    }

    /// Returns the charger of a request, if its tenant is charged for tokens.
    #[inline]
    fn charger(&self, permit: &Permit<Endpoints>) -> Option<Charger<Endpoints>> {
        if !self.charges_tokens() {
            return None;
        }
        let charger = permit.charger()?;
        let of_lane = self.endpoints().partition(charger.lane()?).discipline;
        let discipline = of_lane.unwrap_or(self.state.settings().config.room.discipline);
        (discipline == Discipline::Fair).then_some(charger)
    }

    fn meter(
        &self,
        permit: &Permit<Endpoints>,
        charger: Option<Charger<Endpoints>>,
        form: AnswerForm,
        observer: Option<&Arc<dyn RouteObserver>>,
    ) -> Box<TokenMeter> {
        let lease = permit.lease();
        let decision = lease.decision();
        let models = &decision.endpoint.config().models;
        let model = models.get(usize::from(decision.nth_model));
        let context = model.and_then(|model| model.context_length);
        let context = context.unwrap_or(u32::MAX);
        Box::new(TokenMeter {
            charger,
            reader: UsageReader::new(form),
            observer: observer.cloned(),
            estimated_prompt: lease.tokens.prompt,
            most_prompt: lease.tokens.prompts(context),
            most_output: lease.tokens.answer(context),
            is_whole: false,
        })
    }
}
