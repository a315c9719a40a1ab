//! Who lets whom in: both sides' certificates, and nothing after them.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::raw::client_config;

/// How long a server may take to say the first word.
const PATIENCE: Duration = Duration::from_secs(60);

/// Whether the server at a port of loopback, for whom the authorities of a file vouch, lets in the client whose certificate
/// is `<client>.crt` with the key `<client>.key`. It is greeted in HTTP/2, where the server speaks first.
///
/// # Panics
///
/// When the files cannot be used.
pub fn is_let_in(port: u16, authorities: &Path, client: &Path) -> bool {
    let config = client_config(authorities, Some(client), b"h2");
    let greeted = async {
        let stream = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
        let connector = TlsConnector::from(Arc::new(config));
        let mut stream = connector.connect(ServerName::try_from("localhost").unwrap(), stream).await.ok()?;
        // Whether the client's certificate does comes after the handshake.
        stream.read_u8().await.ok()
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime
        .block_on(async { tokio::time::timeout(PATIENCE, greeted).await })
        .expect("the server says something")
        .is_some()
}
