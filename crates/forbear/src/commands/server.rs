//! How a command finds a running server and its token.

use forbear_api::Client;
use forbear_api::client::Token;
use forbear_server::config::{Overrides, load};

use crate::cli::Server;

/// The token, for where the data directory cannot be read.
const TOKEN_VARIABLE: &str = "FORBEAR_TOKEN";

/// A client with its token: from the environment, else from the data directory that flag, file or default name.
pub(crate) fn client(server: &Server) -> anyhow::Result<Client> {
    let token = match std::env::var(TOKEN_VARIABLE) {
        Ok(token) if !token.trim().is_empty() => Token::new(&token),
        _ => {
            let overrides = Overrides { data_dir: server.data.clone(), ..Overrides::default() };
            let data = load(server.config.as_deref(), &overrides)?.data_dir()?;
            match Token::from_data_dir(&data) {
                Ok(token) => token,
                // Where no server ever ran there is no token: say that, by asking without one.
                Err(_) if !data.exists() => return Ok(Client::new(&server.server, None)?),
                Err(e) => return Err(e.into()),
            }
        }
    };
    Ok(Client::new(&server.server, Some(token))?)
}
