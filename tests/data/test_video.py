import io
import zlib

import numpy as np
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from data.video import decode_picture, read_frames
from tests.data.lerobot_folder import FPS, write_dataset


def test_texts_in_a_video_or_picture_that_are_no_unicode_harm_nothing(tmp_path):
    file = next(write_dataset(tmp_path / "set").rglob("*.mp4"))
    content = file.read_bytes()
    assert content.count(b"Lavf") == 1  # the name of the program that wrote it
    (tmp_path / "odd.mp4").write_bytes(content.replace(b"Lavf", b"L\xc5vf"))
    times = np.arange(3) / FPS
    odd, sound = (read_frames(each, times, tolerance_s=0.01) for each in (tmp_path / "odd.mp4", file))
    np.testing.assert_array_equal(odd, sound)
    buffer = io.BytesIO()
    text = PngInfo()
    text.add_text("Comment", "Lavf")
    Image.fromarray(np.full((4, 6, 3), 7, np.uint8)).save(buffer, "PNG", pnginfo=text)
    content = buffer.getvalue()
    start = content.index(b"tEXt")
    stop = content.index(b"Lavf") + 4
    chunk = content[start:stop].replace(b"Lavf", b"L\xc5vf")
    odd = content[:start] + chunk + zlib.crc32(chunk).to_bytes(4, "big") + content[stop + 4 :]
    assert (decode_picture(odd) == 7).all()
