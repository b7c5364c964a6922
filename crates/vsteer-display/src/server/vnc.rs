//! A viewer of VNC servers: this program's own client, which decodes in the viewer's thread.

use crate::picture::canvas::Size;
use crate::picture::number;
use crate::rfb::{Client, Encoding, Said};
use crate::server::ends::Viewer;
use std::io::BufReader;
use std::net::TcpStream;
use vsteer_core::{Fault, FaultKind};

/// If more than this share of pixels arrived in another encoding than requested, it counts as another
/// encoding. A server's first rectangles may differ.
const OTHERWISE_MOST: f64 = 0.1;
const BUFFER: usize = 1 << 16;

pub struct Vnc {
    client: Client<BufReader<TcpStream>, TcpStream>,
    encoding: Encoding,
}

impl Vnc {
    /// Greets the server.
    ///
    /// # Errors
    /// See [`Client::start`].
    pub fn start(stream: TcpStream, encoding: Encoding) -> Result<Vnc, Fault> {
        let writes = stream.try_clone().map_err(|e| Fault::io("a socket of the viewer's".to_owned(), &e))?;
        Ok(Vnc {
            client: Client::start(BufReader::with_capacity(BUFFER, stream), writes, encoding)?,
            encoding,
        })
    }
}

impl Viewer for Vnc {
    fn changed(&mut self) -> Result<bool, Fault> {
        self.client.next().map(|said| said == Said::Update)
    }

    fn number(&mut self) -> Result<Option<(u32, [usize; 2])>, Fault> {
        let screen = self.client.screen();
        Ok(number::read(screen.pixels(), screen.size()))
    }

    fn part(&mut self, at: [usize; 2], size: Size) -> Result<Option<Vec<u8>>, Fault> {
        Ok(self.client.screen().part(at, size))
    }

    fn cpu_ns(&self) -> Option<u64> {
        None
    }

    fn negotiated(&mut self) -> (String, Option<Fault>) {
        let otherwise = self.client.otherwise().filter(|part| *part > OTHERWISE_MOST);
        let why = otherwise.map(|part| {
            let what = format!("the server did not send what was asked for ({:?})", self.encoding);
            let why = format!("{:.0} % of the pixels came as something else", 100.0 * part);
            Fault::new(FaultKind::Unsupported, what).because(why)
        });
        (self.client.negotiated(), why)
    }
}
