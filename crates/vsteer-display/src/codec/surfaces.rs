//! Copies frames to a GPU's surfaces, for encoders that accept nothing else (VA-API). A pool holds the
//! surfaces.
//!
//! The device is libva's first one; `LIBVA_DRIVER_NAME` and similar variables choose another driver.
//! **Untried**: no machine with such a device was available. Tested: a machine without one reports this.
//!
//! Source: libavutil/hwcontext.h (FFmpeg 5.1). Left out: several GPUs (`/dev/dri/renderD129`), and frames
//! that are drawn on the GPU, which need no copy.

#![allow(unsafe_code)]

use crate::picture::canvas::Size;
use ffmpeg_next::ffi;
use ffmpeg_next::format::Pixel;
use ffmpeg_next::{Error, encoder, frame};
use std::ptr;
use vsteer_core::{Fault, FaultKind};

/// A pixel format in memory that every such encoder accepts.
pub const UPLOADED: Pixel = Pixel::NV12;
/// Surfaces in the pool: the frame being encoded, its reference frames, one being written.
const POOL: i32 = 8;

/// A reference that this program owns.
struct Reference(*mut ffi::AVBufferRef);

impl Drop for Reference {
    fn drop(&mut self) {
        // SAFETY: this program owns the reference and releases it once.
        unsafe { ffi::av_buffer_unref(&raw mut self.0) }
    }
}

/// A pool of surfaces of one size.
pub struct Surfaces {
    name: &'static str,
    frames: Reference,
}

impl Surfaces {
    /// A pool on libva's first device, for codec `name`.
    ///
    /// # Errors
    /// There is no such device, or it has no surfaces of this size.
    pub fn new(name: &'static str, size: Size) -> Result<Surfaces, Fault> {
        let mut device = ptr::null_mut();
        let kind = ffi::AVHWDeviceType::AV_HWDEVICE_TYPE_VAAPI;
        // SAFETY: FFmpeg writes `device` if it returns 0. The two null pointers mean the first device and no
        // options.
        let code =
            unsafe { ffi::av_hwdevice_ctx_create(&raw mut device, kind, ptr::null(), ptr::null_mut(), 0) };
        check(code).map_err(|e| {
            Fault::new(FaultKind::NothingThere, format!("{name}: there is no device for VA-API"))
                .because(e)
                .help("`vainfo` tells what libva finds; a guest needs a GPU passed through; without one, --codec h264")
        })?;
        let device = Reference(device);
        // SAFETY: `device` is a valid reference; a null result is checked below.
        let frames = Reference(unsafe { ffi::av_hwframe_ctx_alloc(device.0) });
        if frames.0.is_null() {
            return Err(Fault::new(FaultKind::Failed, format!("{name}: no memory for surfaces")));
        }
        // SAFETY: the data of a result of av_hwframe_ctx_alloc is an AVHWFramesContext, which must be filled
        // in before its initialisation.
        let code = unsafe {
            let context = (*frames.0).data.cast::<ffi::AVHWFramesContext>();
            (*context).format = ffi::AVPixelFormat::AV_PIX_FMT_VAAPI;
            (*context).sw_format = UPLOADED.into();
            (*context).width = size.width as i32;
            (*context).height = size.height as i32;
            (*context).initial_pool_size = POOL;
            ffi::av_hwframe_ctx_init(frames.0)
        };
        check(code).map_err(failed(name, "making surfaces"))?;
        Ok(Surfaces { name, frames })
    }

    /// Makes the encoder that is opened from `video` use these surfaces.
    pub fn attach(&self, video: &mut encoder::video::Video) {
        video.set_format(Pixel::VAAPI);
        // SAFETY: `video` owns the context, which is not open yet. The context gets its own reference and
        // releases it.
        unsafe { (*video.as_mut_ptr()).hw_frames_ctx = ffi::av_buffer_ref(self.frames.0) }
    }

    /// A surface with the content of `frame`.
    ///
    /// # Errors
    /// The device's.
    pub fn upload(&self, frame: &frame::Video) -> Result<frame::Video, Fault> {
        let mut surface = frame::Video::empty();
        // SAFETY: the pool and both frames live through the calls. `surface` is empty, as
        // av_hwframe_get_buffer requires.
        let code = unsafe {
            match ffi::av_hwframe_get_buffer(self.frames.0, surface.as_mut_ptr(), 0) {
                0 => ffi::av_hwframe_transfer_data(surface.as_mut_ptr(), frame.as_ptr(), 0),
                code => code,
            }
        };
        check(code).map_err(failed(self.name, "copying to a surface"))?;
        surface.set_pts(frame.pts());
        Ok(surface)
    }
}

fn check(code: i32) -> Result<(), Error> {
    if code < 0 { Err(Error::from(code)) } else { Ok(()) }
}

/// The fault for a call that FFmpeg refused, with the encoder's name.
pub(super) fn failed<'a>(name: &'a str, what: &'a str) -> impl Fn(Error) -> Fault + 'a {
    move |e| Fault::new(FaultKind::Failed, format!("{name}: {what}")).because(e)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Uses the device if there is one; otherwise checks the message.
    #[test]
    fn a_machine_without_a_device_says_so() {
        let size = Size { width: 640, height: 360 };
        match Surfaces::new("h264-vaapi", size) {
            Err(fault) => assert!(fault.to_string().contains("no device for VA-API"), "{fault}"),
            Ok(surfaces) => {
                let mut frame = frame::Video::new(UPLOADED, size.width as u32, size.height as u32);
                frame.set_pts(Some(7));
                let surface = surfaces.upload(&frame).unwrap();
                assert_eq!((surface.format(), surface.pts()), (Pixel::VAAPI, Some(7)));
            }
        }
    }
}
