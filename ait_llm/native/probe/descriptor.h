// A descriptor that stays open between calls in a process that is not ours: the host may close it,
// as daemons do, and its number may then belong to a file or socket of the host.
#ifndef AIT_PROBE_DESCRIPTOR_H
#define AIT_PROBE_DESCRIPTOR_H

#include <sys/stat.h>
#include <sys/types.h>

namespace ait {

class HeldDescriptor {
public:
    HeldDescriptor() = default;
    // Takes an open descriptor, or a negative number for none.
    explicit HeldDescriptor(int fd);
    HeldDescriptor(HeldDescriptor &&other) noexcept;
    HeldDescriptor &operator=(HeldDescriptor &&other) noexcept;
    HeldDescriptor(const HeldDescriptor &) = delete;
    HeldDescriptor &operator=(const HeldDescriptor &) = delete;
    ~HeldDescriptor() { Close(); }

    // True where something was opened, whatever became of it.
    bool Opened() const { return fd_ >= 0; }
    // The descriptor where it still is what was opened, otherwise -1.
    int Get() const;
    bool SameFile(const HeldDescriptor &other) const;
    // Closes what is still ours and leaves alone what is not.
    void Close();

private:
    int fd_ = -1;
    dev_t device_ = 0;
    ino_t inode_ = 0;
    mode_t type_ = 0;
};

} // namespace ait

#endif
