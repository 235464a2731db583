//! The data plane: what an agent sends becomes an action, and what the core decides becomes an answer.
//!
//! `ingress` understands a request, `call` carries one action from admission to answer, `attempt` makes one send and
//! reports what it proves, `copy` keeps an answer for those who wait for the same one, `relay` hands the provider's answer on, `own` makes Forbear's own answers, `advice` what a run is told of better ways, `stacked` what a client of its own retries. Nothing here decides
//! whether or when something is sent.

mod account;
mod advice;
mod attempt;
mod body_key;
mod call;
mod copy;
mod digests;
mod disguise;
mod hops;
mod ingress;
mod location;
mod marks;
mod opening;
mod own;
mod scopes;
mod secrets;
mod signature;
mod stacked;
mod table;

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;

pub use account::owner_of;
use call::Call;
pub use call::Held;
pub use copy::{AnswerCopy, Copies};
pub use hops::Hop;
pub use stacked::Told;
pub use table::{BadProvider, Provider, Table};

use crate::http::body::BodyLimits;
use crate::http::pool::Pool;
use crate::http::relay::AgentBody;
use crate::keys::Keys;
use crate::outside::Chance;
use crate::shard::Shard;

/// An answer on its way.
pub type Answering = Pin<Box<dyn Future<Output = Response<AgentBody>> + Send>>;

/// Everything a call needs.
pub struct Gateway {
    pub shard: Arc<Shard>,
    /// Another one after a reload. A lock that is hardly ever written costs a call some nanoseconds.
    pub table: RwLock<Arc<Table>>,
    pub pool: Pool,
    pub chance: Chance,
    pub keys: Keys,
    pub hop: Hop,
    pub log_id: forbear_store::LogId,
    pub limits: BodyLimits,
    /// Bytes of bodies held for a resend at this moment, over all calls.
    pub held: Held,
    pub connect_timeout: Duration,
    pub head_timeout: Duration,
    /// Also reads are journaled before they are sent.
    pub journal_before: bool,
    /// Clients that know that their retries stand on Forbear's.
    pub told: Told,
}

impl Gateway {
    /// The providers and classes in force now. Whoever understands a call by them goes on with them to its end.
    pub fn table(&self) -> Arc<Table> {
        Arc::clone(&self.table.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Calls that come from now on are understood by this one.
    pub fn use_table(&self, table: Table) {
        let table = Arc::new(table);
        *self.table.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&table);
        self.keep_warm(&table);
    }

    /// Opens connections ahead of calls where a contract wants that.
    pub fn keep_warm(&self, table: &Table) {
        for provider in table.providers() {
            let connections = provider.compiled.contract.warm_connections;
            self.pool.keep_warm(&provider.origin, usize::try_from(connections).unwrap_or(usize::MAX));
        }
    }

    /// Answers one request to a provider. Requests for `/-/` go elsewhere. Boxed, because whoever drives it moves it.
    pub fn serve(self: Arc<Self>, request: Request<Incoming>) -> Answering {
        match ingress::understand(&self, &request) {
            Ok(understood) => {
                let (head, incoming) = request.into_parts();
                Box::pin(call::run(Call::new(self, understood, head), incoming))
            }
            Err(refusal) => Box::pin(std::future::ready(own::refusal(&refusal))),
        }
    }
}
