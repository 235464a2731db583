//! HTTP/1.1 as plain as can be, read and written by hand: what is under test parses nothing here.

use forbear_server::http::pipe::Pipe;
use tokio::io::AsyncReadExt as _;

/// No head and no body of these tests is longer.
const BYTES_MAX: usize = 1 << 20;

/// One end of a connection and what was read ahead on it.
pub(crate) struct Peer {
    pub(crate) pipe: Pipe,
    pub(crate) read: Vec<u8>,
}

/// The first line and the fields.
#[derive(Debug, Clone, Default)]
pub(crate) struct Head {
    pub(crate) first: String,
    fields: Vec<(String, String)>,
}

impl Head {
    /// A field's value, empty where there is none.
    pub(crate) fn field(&self, name: &str) -> &str {
        self.fields.iter().find(|(n, _)| n == name).map_or("", |(_, v)| v)
    }

    /// As it came.
    pub(crate) fn text(&self) -> String {
        let fields = self.fields.iter().map(|(n, v)| format!("{n}: {v}\r\n")).collect::<String>();
        format!("{}\r\n{fields}\r\n", self.first)
    }

    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.field(name).parse().ok()
    }

    fn parse(text: &str) -> Self {
        let mut lines = text.split("\r\n");
        let first = lines.next().unwrap_or_default().to_owned();
        let fields = lines.filter_map(|l| l.split_once(':'));
        Self { first, fields: fields.map(|(n, v)| (n.to_ascii_lowercase(), v.trim().to_owned())).collect() }
    }
}

impl Peer {
    pub(crate) fn new(pipe: Pipe) -> Self {
        Self { pipe, read: Vec::new() }
    }

    /// False once nothing more comes.
    pub(crate) async fn fill(&mut self) -> bool {
        assert!(self.read.len() < BYTES_MAX, "more than anybody was to send");
        self.pipe.read_buf(&mut self.read).await.is_ok_and(|n| n > 0)
    }

    /// None where the connection ended before its end.
    pub(crate) async fn head(&mut self) -> Option<Head> {
        loop {
            if let Some(end) = self.read.windows(4).position(|w| w == b"\r\n\r\n") {
                let bytes: Vec<u8> = self.read.drain(..end + 4).collect();
                return Some(Head::parse(&String::from_utf8_lossy(&bytes[..end])));
            }
            if !self.fill().await {
                return None;
            }
        }
    }

    /// So many bytes, or as many as came before the end.
    pub(crate) async fn bytes(&mut self, count: usize) -> Result<Vec<u8>, usize> {
        while self.read.len() < count {
            if !self.fill().await {
                return Err(self.read.len());
            }
        }
        Ok(self.read.drain(..count).collect())
    }

    async fn line(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.read.windows(2).position(|w| w == b"\r\n") {
                let bytes: Vec<u8> = self.read.drain(..end + 2).collect();
                return Some(String::from_utf8_lossy(&bytes[..end]).into_owned());
            }
            if !self.fill().await {
                return None;
            }
        }
    }

    /// A whole body by its framing; none where it was cut. Without framing an answer goes on until the end.
    pub(crate) async fn body(&mut self, head: &Head, is_answer: bool) -> Option<Vec<u8>> {
        if head.field("transfer-encoding").eq_ignore_ascii_case("chunked") {
            let mut whole = Vec::new();
            loop {
                let size = usize::from_str_radix(self.line().await?.trim(), 16).ok()?;
                if size == 0 {
                    return self.line().await.map(|_| whole);
                }
                whole.extend(self.bytes(size).await.ok()?);
                self.line().await?;
            }
        }
        match head.number("content-length") {
            Some(length) => self.bytes(usize::try_from(length).ok()?).await.ok(),
            None if is_answer => {
                while self.fill().await {}
                Some(std::mem::take(&mut self.read))
            }
            None => Some(Vec::new()),
        }
    }
}
