// A file that grows line by line and never holds half a line.
#ifndef AIT_PROBE_APPEND_FILE_H
#define AIT_PROBE_APPEND_FILE_H

#include <string>

#include "directories.h"

namespace ait {

class AppendFile {
public:
    AppendFile() = default;
    ~AppendFile() { Close(); }
    AppendFile(const AppendFile &) = delete;
    AppendFile &operator=(const AppendFile &) = delete;
    AppendFile(AppendFile &&other) noexcept = default;

    // Each returns 0 or an errno.
    // `fresh` replaces a file of that name; otherwise lines are added to it.
    int Open(Directories &directories, const std::string &path, bool fresh);
    // `keep` bytes of the reserve stay for lines that matter more.
    int Append(const std::string &lines, long long keep = 0);
    // Replaces everything that was appended so far.
    int Rewrite(const std::string &content);
    int MoveTo(Directories &directories, const std::string &path);
    void Close();

    bool IsOpen() const { return file_.Opened(); }
    bool IsEmpty();
    // True where the file (or the directory around it) was removed by someone else.
    bool Removed();
    // Held until the file is closed: tells readers that lines may follow.
    void Lock();
    // Keeps disk blocks for lines to come, so that they fit on a disk that fills up meanwhile.
    // True where they are kept, or where the file system cannot keep any.
    bool Reserve();

private:
    bool Reserve(long long bytes);
    // Opened again where the host has closed it; -1 where the file is not there any more.
    int Descriptor();

    Directories *directories_ = nullptr;
    std::string path_;
    HeldDescriptor file_;
    long long reserved_ = 0;
    bool locked_ = false;
    bool reserves_ = false;
};

// Appends one line to a file that several processes share; 0 or an errno.
int AppendShared(const std::string &path, const std::string &line);

} // namespace ait

#endif
