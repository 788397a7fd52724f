// Search in pages that were opened from the file system. Browsers start no worker from file://, so a
// hidden frame takes its place: it loads the same script and passes the same messages.
if (location.protocol === "file:") {
  // The script that runs in the frame asks for the second name to know where it is.
  window.Worker = window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      this.waiting = [];
      const base = new URL(url, document.baseURI);
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.inner = frame.contentWindow;
      const load = (address) =>
        new Promise((done, failed) => {
          const script = this.inner.document.createElement("script");
          script.src = new URL(address, base);
          script.onload = done;
          script.onerror = () => failed(new Error(`${address} cannot be loaded`));
          this.inner.document.body.append(script);
        });
      this.inner.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.inner.importScripts = (...addresses) =>
        addresses.reduce((before, each) => before.then(() => load(each)), Promise.resolve());
      load(base).then(() => {
        this.loaded = true;
        this.waiting.splice(0).forEach((data) => this.postMessage(data));
      });
    }
    postMessage(data) {
      if (this.loaded) this.inner.dispatchEvent(new MessageEvent("message", { data }));
      else this.waiting.push(data);
    }
    terminate() {}
  };
}
