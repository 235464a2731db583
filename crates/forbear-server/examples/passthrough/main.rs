//! `passthrough LISTEN BASE_URL`: the gateway's plumbing without any deciding, to measure and to try by hand.

mod proxy;

use std::sync::Arc;

use forbear_server::http::dial::tls_config;
use forbear_server::http::origin::Origin;
use forbear_server::http::pool::Pool;
use forbear_server::http::serve::{ServeOptions, serve};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(listen), Some(base_url)) = (arguments.next(), arguments.next()) else {
        return Err("usage: passthrough LISTEN BASE_URL".into());
    };
    let (origin, base_path) = Origin::parse(&base_url)?;
    let proxy = Arc::new(proxy::Proxy::new(Pool::new(tls_config(None)?), origin, base_path));
    let listener = tokio::net::TcpListener::bind(listen).await?;
    let stop = async {
        let _ = tokio::signal::ctrl_c().await;
    };
    serve(listener, ServeOptions::default(), stop, move |request, _| proxy::handle(Arc::clone(&proxy), request)).await;
    Ok(())
}
