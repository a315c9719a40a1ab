//! HTTP/1.1 by hand, for what no client library does: bodies that do not end, answers that are not read.

use std::fmt::Write as _;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpSocket;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::server::Cluster;

/// How much the kernel keeps of what is not read, in bytes.
const RECEIVE_BUFFER: u32 = 16 << 10;

/// What lets a client in at a server whose authorities are in a file: the certificate `<client>.crt`, or none.
pub(crate) fn client_config(authorities: &Path, client: Option<&Path>, protocol: &[u8]) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    for authority in CertificateDer::pem_file_iter(authorities).unwrap() {
        roots.add(authority.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let builder = builder.with_root_certificates(roots);
    let mut config = match client {
        None => builder.with_no_client_auth(),
        Some(client) => {
            let chain = CertificateDer::pem_file_iter(client.with_extension("crt")).unwrap().map(Result::unwrap);
            let key = PrivateKeyDer::from_pem_file(client.with_extension("key")).unwrap();
            builder.with_client_auth_cert(chain.collect(), key).unwrap()
        }
    };
    config.alpn_protocols = vec![protocol.to_vec()];
    config
}

/// One connection, which keeps next to nothing of what is not read.
#[derive(Debug)]
pub struct Connection {
    stream: BufReader<TlsStream<tokio::net::TcpStream>>,
}

/// The head of an answer.
#[derive(Debug)]
pub struct Reply {
    /// The code of HTTP.
    pub code: u16,
    /// Names, in small letters, and values.
    pub headers: Vec<(String, String)>,
}

impl Reply {
    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// Where a server is, and who vouches for it.
#[derive(Debug)]
pub struct Door {
    port: u16,
    authority: PathBuf,
    pki: PathBuf,
}

impl Cluster {
    /// That of kube-apiserver.
    pub fn raw_front_door(&self) -> Door {
        self.door("APISERVER_URL", "CLUSTER_CA")
    }

    /// That of the registered Stoa.
    pub fn raw_door(&self) -> Door {
        self.door("STOA_URL", "STOA_CA")
    }

    fn door(&self, url: &str, authority: &str) -> Door {
        let port = self.env(url).rsplit(':').next().and_then(|port| port.parse().ok()).expect("a URL with a port");
        Door { port, authority: self.env(authority).into(), pki: self.pki() }
    }
}

impl Door {
    /// Connects with a certificate of the test bed, by the name of its file, or with none.
    ///
    /// # Errors
    ///
    /// When nobody listens, or the handshake fails.
    ///
    /// # Panics
    ///
    /// When the files cannot be used.
    pub async fn connect(&self, certificate: Option<&str>) -> io::Result<Connection> {
        let socket = TcpSocket::new_v4()?;
        socket.set_recv_buffer_size(RECEIVE_BUFFER)?;
        let stream = socket.connect((Ipv4Addr::LOCALHOST, self.port).into()).await?;
        let client = certificate.map(|name| self.pki.join(name));
        let connector = TlsConnector::from(Arc::new(client_config(&self.authority, client.as_deref(), b"http/1.1")));
        let stream = connector.connect(ServerName::try_from("localhost").expect("a name"), stream).await?;
        Ok(Connection { stream: BufReader::with_capacity(4 << 10, stream) })
    }
}

impl Connection {
    /// The certificate that the server showed, in DER.
    pub fn server_certificate(&self) -> Vec<u8> {
        let (_, session) = self.stream.get_ref().get_ref();
        session.peer_certificates().expect("it showed one")[0].to_vec()
    }

    /// Begins a request: its first line, such as `GET /readyz`, and headers; what follows of it is the caller's.
    ///
    /// # Errors
    ///
    /// When the connection is over.
    pub async fn begin(&mut self, request: &str, headers: &[(&str, &str)], body: &str) -> io::Result<()> {
        let mut text = format!("{request} HTTP/1.1\r\nHost: localhost\r\n");
        for (name, value) in headers {
            let _ = write!(text, "{name}: {value}\r\n");
        }
        self.write(&format!("{text}\r\n{body}")).await
    }

    /// Sends more of a request.
    ///
    /// # Errors
    ///
    /// When the connection is over.
    pub async fn write(&mut self, text: &str) -> io::Result<()> {
        self.stream.write_all(text.as_bytes()).await?;
        self.stream.flush().await
    }

    async fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        match self.stream.read_line(&mut line).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(line.trim_end().to_owned()),
        }
    }

    /// Reads the head of an answer.
    ///
    /// # Errors
    ///
    /// When the connection is over.
    pub async fn reply(&mut self) -> io::Result<Reply> {
        let line = self.line().await?;
        let code = line.split(' ').nth(1).and_then(|code| code.parse().ok());
        let code = code.ok_or_else(|| io::Error::other(line.clone()))?;
        let mut headers = Vec::new();
        loop {
            let line = self.line().await?;
            let Some((name, value)) = line.split_once(':') else { break };
            headers.push((name.to_lowercase(), value.trim().to_owned()));
        }
        Ok(Reply { code, headers })
    }

    /// The next chunk of an answer's body; `None` at its orderly end.
    ///
    /// # Errors
    ///
    /// When the connection is over before that.
    pub async fn chunk(&mut self) -> io::Result<Option<Vec<u8>>> {
        let line = self.line().await?;
        let length = usize::from_str_radix(&line, 16).map_err(|_| io::Error::other(line))?;
        let mut chunk = vec![0; length];
        self.stream.read_exact(&mut chunk).await?;
        self.line().await?;
        Ok((length > 0).then_some(chunk))
    }

    /// Reads a watch to its orderly end; what it says, events one after the other.
    ///
    /// # Errors
    ///
    /// When it is broken off.
    pub async fn events(&mut self) -> io::Result<Vec<Value>> {
        let mut text = Vec::new();
        while let Some(chunk) = self.chunk().await? {
            text.extend(chunk);
        }
        let events = serde_json::Deserializer::from_slice(&text).into_iter();
        events.map(|event| event.map_err(io::Error::other)).collect()
    }
}
