//! How a command finds a running server and its token.

use std::path::Path;

use forbear_api::Client;
use forbear_api::client::{DEFAULT_SERVER, Token};
use forbear_server::config::{Overrides, load};

use crate::cli::Server;
use crate::failure::{Exit, NotSo};

/// The token, for where the data directory cannot be read.
const TOKEN_VARIABLE: &str = "FORBEAR_TOKEN";
/// The address, for where no data directory says it.
const SERVER_VARIABLE: &str = "FORBEAR_SERVER";

/// A client with its address and its token. A flag wins over the environment, and that over the usual data directory.
pub(crate) fn client(server: &Server) -> anyhow::Result<Client> {
    if let Some(data) = server.data.as_deref().filter(|data| !data.is_dir()) {
        return Err(no_such_directory(data).into());
    }
    let is_told = server.data.is_some() || server.config.is_some();
    let token = variable(TOKEN_VARIABLE).filter(|_| !is_told).map(|token| Token::new(&token));
    let overrides = Overrides { data_dir: server.data.clone(), ..Overrides::default() };
    let data = match load(server.config.as_deref(), &overrides)?.data_dir() {
        Ok(data) => Some(data),
        Err(_) if token.is_some() => None,
        Err(e) => return Err(e.into()),
    };
    let token = match (token, &data) {
        (None, Some(data)) if data.exists() => Some(Token::from_data_dir(data)?),
        // Where no server ever ran there is no token: say that, by asking without one.
        (token, _) => token,
    };
    let address = variable(SERVER_VARIABLE);
    let otherwise = address.as_deref().unwrap_or(DEFAULT_SERVER);
    Ok(match (&server.server, &data) {
        (Some(address), _) => Client::new(address, token)?,
        (None, Some(data)) if is_told || address.is_none() => Client::of_data_dir(data, otherwise, token)?,
        (None, _) => Client::new(otherwise, token)?,
    })
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.trim().is_empty())
}

fn no_such_directory(data: &Path) -> NotSo {
    NotSo {
        exit: Exit::NotFound,
        happened: format!("there is no directory {}", data.display()),
        to_do: "name the data directory that `forbear serve` printed".to_owned(),
    }
}
