#include <mutex>

#include "channel.h"

namespace ait {
namespace {

class DirectChannel : public Channel {
public:
    DirectChannel(const Settings &settings, const HostFacts &facts)
        : recorder_(settings, facts, [] { return uint64_t{0}; })
    {
        recorder_.Start();
    }

    bool Send(const Message &message) override
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        Dispatch(recorder_, message);
        recorder_.Flush();
        return true;
    }

    bool SaveTensor(uint32_t thread, const TensorHead &head, const void *data) override
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        recorder_.Tensor(thread, head, data);
        recorder_.Flush();
        return true;
    }

    void Seal(uint32_t thread) override
    {
        Message message;
        message.kind = Kind::SEAL;
        message.thread = thread;
        Send(message);
    }

    void BeforeFork() override { mutex_.lock(); }
    void AfterForkInParent() override { mutex_.unlock(); }
    void AfterForkInChild() override { mutex_.unlock(); }

private:
    std::mutex mutex_;
    Recorder recorder_;
};

} // namespace

std::unique_ptr<Channel> OpenDirectChannel(const Settings &settings, const HostFacts &facts)
{
    return std::make_unique<DirectChannel>(settings, facts);
}

} // namespace ait
