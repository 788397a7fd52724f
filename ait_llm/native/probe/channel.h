// The way of messages from the host's threads to the recorder.
#ifndef AIT_PROBE_CHANNEL_H
#define AIT_PROBE_CHANNEL_H

#include <memory>
#include <string>
#include <sys/types.h>
#include <unistd.h>

#include "settings.h"
#include "wire.h"

namespace ait {

class Channel {
public:
    Channel() : pid_(getpid()) {}
    virtual ~Channel() = default;
    Channel(const Channel &) = delete;
    Channel &operator=(const Channel &) = delete;

    // Any thread. The data is copied or written before this returns. False where it is lost.
    virtual bool Send(const Message &message) = 0;
    virtual bool SaveTensor(uint32_t thread, const TensorHead &head, const void *data) = 0;
    // The process calls exit(): returns when everything is on disk and the ledger is sealed.
    virtual void Seal(uint32_t thread) = 0;

    // Around fork(); in the child this object is not used any more.
    virtual void BeforeFork() = 0;
    virtual void AfterForkInParent() = 0;
    virtual void AfterForkInChild() = 0;

    // The process that opened it; a child that was forked needs its own.
    pid_t Pid() const { return pid_; }

private:
    pid_t pid_;
};

// Messages are carried out in the calling thread.
std::unique_ptr<Channel> OpenDirectChannel(const Settings &settings, const HostFacts &facts);

// Messages go through shared memory to a process of our own. Null where it cannot be had.
std::unique_ptr<Channel> OpenQueueChannel(const Settings &settings, const HostFacts &facts);

} // namespace ait

#endif
